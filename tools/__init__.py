"""Write the parts of the documentation that are generated from the code."""
