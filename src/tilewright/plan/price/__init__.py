"""What things cost on a target. In: shapes and a target. Out: cycles and seconds."""
