"""What a policy would do with a load: a discrete simulation of one tree; pure, and the same for the same seed."""
