"""What browsers are given: JavaScript and CSS, as they are."""
