package cpu

// Backend runs the ops on the host's cores.
type Backend struct {
	*Oracle
}

// New returns a backend.
func New(o Options) (*Backend, error) {
	return &Backend{NewOracle(o.Math)}, nil
}
