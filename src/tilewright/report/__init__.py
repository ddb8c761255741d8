"""What the compiler says to people: errors, snippets of programs, progress, and the settings of the environment."""
