"""The search methods, which see spaces and measurements and nothing of TVM."""
