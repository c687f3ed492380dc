"""Many runs, on one machine or a thousand: a list of commands, and somewhere to run them.

reading         inputs.txt, JSON sweeps, command files -> jobs
launch_folder   logs and records of the jobs; what has finished
local           some at a time on this machine
slurm, task     arrays of SLURM: one task, one run, one private Ray
ray_cluster     a Ray cluster that runs already
status          tables for people

A login node has neither a GPU nor patience: nothing here imports torch or ray, but for
`ray_cluster` when it is used. A job is always a process: `custom_training.py`, or any other.
"""
