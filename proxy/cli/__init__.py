"""The subcommands of ``kafka-quota-proxy``. Each has a module or a package of its own."""
