"""The subcommands of ``kafka-quota-proxy``, such as ``check``. Each has a module or a package of its own."""
