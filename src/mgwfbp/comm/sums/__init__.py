"""How a message is summed over the ranks: the MPI library's way, and ways of ours."""
