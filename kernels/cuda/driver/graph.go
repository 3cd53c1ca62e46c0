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

static CUresult graph_launch(CUgraphExec e, CUgraphExec then, CUstream s) {
	CUresult r = cuGraphLaunch(e, s);
	return r || !then ? r : cuGraphLaunch(then, s);
}
*/
import "C"

import (
	"errors"
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

// Recording keeps launches on a stream instead of running them, as one graph or, with
// cuts, as several that run one after another.
type Recording struct {
	stream cu.Stream
	graphs []*Graph
}

// Record begins a recording of what is launched on s. The calling goroutine must be
// locked to its thread until End.
func Record(s cu.Stream) (*Recording, error) {
	if err := check(C.capture_begin(stream(s)), "begin capture"); err != nil {
		return nil, err
	}
	return &Recording{stream: s}, nil
}

// Cut makes what was launched until now a graph of its own. After an error the
// recording is over, and End returns it.
func (r *Recording) Cut() error {
	if err := r.end(); err != nil {
		return err
	}
	return check(C.capture_begin(stream(r.stream)), "begin capture")
}

// end makes a graph of what was launched since the last cut.
func (r *Recording) end() error {
	g := new(Graph)
	var nodes C.size_t
	if err := check(C.capture_end(stream(r.stream), &g.exec, &nodes), "end capture"); err != nil {
		return err
	}
	g.Nodes = int(nodes)
	r.graphs = append(r.graphs, g)
	return nil
}

// End returns the graphs in their order. failed is what went wrong with the launches,
// or nil: there are no graphs then.
func (r *Recording) End(failed error) ([]*Graph, error) {
	err := r.end()
	if failed != nil {
		err = failed
	}
	if err != nil {
		for _, g := range r.graphs {
			err = errors.Join(err, g.Close())
		}
		return nil, err
	}
	return r.graphs, nil
}

// Launch queues g on s and, if it is not nil, then behind it.
func (g *Graph) Launch(then *Graph, s cu.Stream) error {
	var second C.CUgraphExec
	if then != nil {
		second = then.exec
	}
	return check(C.graph_launch(g.exec, second, stream(s)), "graph launch")
}

// Close frees the graph. It must not be running.
func (g *Graph) Close() error { return check(C.cuGraphExecDestroy(g.exec), "graph destroy") }
