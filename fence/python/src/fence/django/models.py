"""No models: Django sends `post_migrate` only to apps with this module."""
