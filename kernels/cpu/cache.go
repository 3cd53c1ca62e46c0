package cpu

import (
	"fmt"
	"unsafe"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// cache is paged KV memory: [layer][keys, values][block][kv head][offset in
// block][headDim]. A head's keys of one block are contiguous, so attention
// streams them; a block of one layer is contiguous for one head only.
type cache struct {
	spec kernels.CacheSpec
	mem  memory
}

// kvHalf picks keys or values.
type kvHalf int

const (
	keys kvHalf = iota
	values
)

// newCache maps the memory; pages cost nothing until a block is used.
func newCache(spec kernels.CacheSpec) (*cache, error) {
	if err := checkCache(spec); err != nil {
		return nil, err
	}
	m, err := newMemory(spec.Bytes())
	if err != nil {
		return nil, fmt.Errorf("cpu: cache of %d blocks: %w", spec.NumBlocks, err)
	}
	return &cache{spec: spec, mem: m}, nil
}

// Spec returns what the cache was made from.
func (c *cache) Spec() kernels.CacheSpec { return c.spec }

// Close gives the memory back.
func (c *cache) Close() error { return c.mem.close() }

// check verifies that a layer's shape is the cache's.
func (c *cache) check(a kernels.QKV) {
	s := c.spec
	if a.Layer < 0 || a.Layer >= s.Layers || a.NumKVHeads != s.NumKVHeads || a.HeadDim != s.HeadDim ||
		a.HeadDim%2 != 0 || a.NumHeads <= 0 || a.NumHeads%a.NumKVHeads != 0 {
		panic(fmt.Sprintf("BUG: cpu: attention %+v over cache %+v", a, s))
	}
}

// slot returns the place of position p of a sequence with the given block table.
func (c *cache) slot(blocks []int32, p int) int {
	return int(blocks[p/c.spec.BlockSize])*c.spec.BlockSize + p%c.spec.BlockSize
}

// index returns the element at which the vector of one head and slot begins.
func (c *cache) index(layer int, half kvHalf, kvHead, slot int) int {
	s := c.spec
	if slot < 0 || slot >= s.NumBlocks*s.BlockSize {
		panic(fmt.Sprintf("BUG: cpu: cache slot %d of %d", slot, s.NumBlocks*s.BlockSize))
	}
	i := (layer*2+int(half))*s.NumBlocks + slot/s.BlockSize
	return ((i*s.NumKVHeads+kvHead)*s.BlockSize + slot%s.BlockSize) * s.HeadDim
}

// halves views the memory as 16-bit elements.
func (c *cache) halves() []uint16 {
	b := c.mem.bytes
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}

// write stores the k and v parts of a fused row at slot.
func (c *cache) write(a kernels.QKV, row []float32, slot int) {
	for half := keys; half <= values; half++ {
		for h := range a.NumKVHeads {
			from := row[(a.NumHeads+int(half)*a.NumKVHeads+h)*a.HeadDim:][:a.HeadDim]
			at := c.index(a.Layer, half, h, slot)
			switch c.spec.DType {
			case kernels.F32:
				copy(c.mem.floats()[at:], from)
			case kernels.F16:
				to := c.halves()[at:][:a.HeadDim]
				for i, v := range from {
					to[i] = quant.F32ToF16(v)
				}
			case kernels.BF16:
				to := c.halves()[at:][:a.HeadDim]
				for i, v := range from {
					to[i] = quant.F32ToBF16(v)
				}
			}
		}
	}
}

// read sets dst to the stored vector of one head and slot.
func (c *cache) read(dst []float32, layer int, half kvHalf, kvHead, slot int) {
	at := c.index(layer, half, kvHead, slot)
	switch c.spec.DType {
	case kernels.F32:
		copy(dst, c.mem.floats()[at:])
	case kernels.F16:
		for i, h := range c.halves()[at:][:len(dst)] {
			dst[i] = quant.F16ToF32(h)
		}
	case kernels.BF16:
		for i, h := range c.halves()[at:][:len(dst)] {
			dst[i] = quant.BF16ToF32(h)
		}
	}
}
