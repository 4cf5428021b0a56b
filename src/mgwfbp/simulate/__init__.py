"""A cluster on paper: costs of networks that are not here."""
