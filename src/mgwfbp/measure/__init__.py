"""What was measured: layer times, and the run as a timeline."""
