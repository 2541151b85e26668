"""One vLLM engine: its deployment, its checks, and one folder for each thing that it does."""
