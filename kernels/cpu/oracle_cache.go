package cpu

import (
	"fmt"

	"waybill/kernels"
)

// oracleCache is paged KV memory: [layer][keys, values][block][kv head][offset in
// block][headDim].
type oracleCache struct {
	spec kernels.CacheSpec
	mem  memory
}

// kvHalf picks keys or values.
type kvHalf int

const (
	keys kvHalf = iota
	values
)

// newOracleCache maps the memory.
func newOracleCache(spec kernels.CacheSpec) (*oracleCache, error) {
	if err := checkCache(spec); err != nil {
		return nil, err
	}
	m, err := newMemory(spec.Bytes())
	if err != nil {
		return nil, fmt.Errorf("cpu: cache of %d blocks: %w", spec.NumBlocks, err)
	}
	return &oracleCache{spec: spec, mem: m}, nil
}

// Spec returns what the cache was made from.
func (c *oracleCache) Spec() kernels.CacheSpec { return c.spec }

// Close gives the memory back.
func (c *oracleCache) Close() error { return c.mem.close() }

// slot returns the place of position p of a sequence with the given block table.
func (c *oracleCache) slot(blocks []int32, p int) int {
	return int(blocks[p/c.spec.BlockSize])*c.spec.BlockSize + p%c.spec.BlockSize
}

// index returns the element at which the vector of one head and slot begins.
func (c *oracleCache) index(layer int, half kvHalf, kvHead, slot int) int {
	s := c.spec
	if slot < 0 || slot >= s.NumBlocks*s.BlockSize {
		panic(bug("cache slot %d of %d", slot, s.NumBlocks*s.BlockSize))
	}
	i := (layer*2+int(half))*s.NumBlocks + slot/s.BlockSize
	return ((i*s.NumKVHeads+kvHead)*s.BlockSize + slot%s.BlockSize) * s.HeadDim
}

// write stores the k and v parts of a fused row at slot.
func (c *oracleCache) write(a kernels.QKV, row []float32, slot int) {
	for half := keys; half <= values; half++ {
		for h := range a.NumKVHeads {
			from := row[(a.NumHeads+int(half)*a.NumKVHeads+h)*a.HeadDim:][:a.HeadDim]
			at := c.index(a.Layer, half, h, slot)
			switch c.spec.DType {
			case kernels.F32:
				copy(c.mem.floats()[at:], from)
			default:
				narrow(halvesOf(c.mem.bytes)[at:][:a.HeadDim], from, c.spec.DType)
			}
		}
	}
}

// read sets dst to the stored vector of one head and slot.
func (c *oracleCache) read(dst []float32, layer int, half kvHalf, kvHead, slot int) {
	at := c.index(layer, half, kvHead, slot)
	switch c.spec.DType {
	case kernels.F32:
		copy(dst, c.mem.floats()[at:])
	default:
		for i, h := range halvesOf(c.mem.bytes)[at:][:len(dst)] {
			dst[i] = widen(h, c.spec.DType)
		}
	}
}
