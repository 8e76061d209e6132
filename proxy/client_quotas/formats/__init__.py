"""Changes of quotas, whoever asks for them: as JSON and as files, what differs, how many there may be, who made them.

    json_form   rules, changes and what became of them as JSON: the admin port's, and the command line's
    shown       entities and limits as a person reads them
    now         what holds of a rule at an instant, and why
    diff        what leads from some rules to others, as lines and as changes
    document    rules as a file: a list of ``quotas:``, or JSON
    limit       how many changes there may be in a second
    outcome     what became of one change
    audit       a line of the audit log
    audit_file  the file that these lines go to

All but ``audit_file`` does no I/O.
"""
