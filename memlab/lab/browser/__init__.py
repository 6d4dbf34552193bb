"""The JavaScript and CSS of the panel, as browsers run it."""
