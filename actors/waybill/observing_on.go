//go:build !nostamps

package waybill

// Observing says that stamps are kept and metrics, dump lines, log and spans made
// of them. It is false only under the build tag nostamps, which exists to measure
// what observing costs: `make bench-cost`.
const Observing = true
