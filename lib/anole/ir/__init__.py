"""The library over TVM's IR that importers, passes and targets share."""
