//go:build nostamps

package waybill

// Observing is false in this build: see the other one.
const Observing = false
