"""`kerasbert look`: a model in pictures, on one page that loads nothing from elsewhere."""
