"""What can be run: one file a kind, each with the shape of `running.kind.Kind`."""
