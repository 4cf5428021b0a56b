"""The training loop around network, comm thread and plan."""
