"""What this machine, its kernels and its network can do, measured or estimated."""
