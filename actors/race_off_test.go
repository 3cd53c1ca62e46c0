//go:build !race

package actors

// raceDetector says that the tests run under the race detector.
const raceDetector = false
