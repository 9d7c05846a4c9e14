"""How experience is collected and laid out."""
