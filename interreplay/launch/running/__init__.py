"""One run from its card to its figure, and many: whatever the kind."""
