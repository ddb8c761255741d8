"""Special functions in f64, composed of operators: coefficients as data, one builder for each kind of series."""
