"""The same runs as Slurm jobs: what to submit, what is there, what a job does on its node."""
