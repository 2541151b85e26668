"""The command ``promptly``. Each subcommand is one module; none of them needs a GPU or a running Ray."""
