//go:build cuda

package driver

/*
#include <cuda.h>

#cgo noescape graph_launch
#cgo nocallback graph_launch

static CUresult capture_begin(CUstream s) { return cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); }

static CUresult capture_end(CUstream s, CUgraphExec *out, size_t *nodes) {
	CUgraph g;
	CUresult r = cuStreamEndCapture(s, &g);
	if (r) return r;
	r = cuGraphGetNodes(g, NULL, nodes);
	if (!r) r = cuGraphInstantiateWithFlags(out, g, 0);
	cuGraphDestroy(g);
	return r;
}

static CUresult graph_launch(CUgraphExec e, CUstream s) { return cuGraphLaunch(e, s); }
*/
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"
)

// Graph is a recorded sequence of launches, ready to run again. Addresses and
// scalar arguments are those of the recording.
type Graph struct {
	exec  C.CUgraphExec
	Nodes int
}

func stream(s cu.Stream) C.CUstream { return C.CUstream(unsafe.Pointer(s.C())) }

// Record runs f, which launches work on s, and keeps the launches instead of
// running them. The calling goroutine must be locked to its thread.
func Record(s cu.Stream, f func() error) (*Graph, error) {
	if err := check(C.capture_begin(stream(s)), "begin capture"); err != nil {
		return nil, err
	}
	ferr := f()
	g := new(Graph)
	var nodes C.size_t
	if err := check(C.capture_end(stream(s), &g.exec, &nodes), "end capture"); err != nil {
		return nil, err
	}
	g.Nodes = int(nodes)
	if ferr != nil {
		g.Close()
		return nil, ferr
	}
	return g, nil
}

// Launch queues the graph on s.
func (g *Graph) Launch(s cu.Stream) error {
	return check(C.graph_launch(g.exec, stream(s)), "graph launch")
}

// Close frees the graph. It must not be running.
func (g *Graph) Close() error { return check(C.cuGraphExecDestroy(g.exec), "graph destroy") }
