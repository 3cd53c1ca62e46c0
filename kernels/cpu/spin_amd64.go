package cpu

// spin executes n > 0 pause instructions.
//
//go:noescape
func spin(n int)
