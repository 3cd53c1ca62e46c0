//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/cu"

	"waybill/kernels"
)

// cache is paged keys and values, bf16: for each layer keys, then values, each
// [blocks * block size][kv heads][head dim].
type cache struct {
	spec    kernels.CacheSpec
	backend *Backend
	data    cu.DevicePtr
	// side is keys or values of one layer, in bytes.
	side int64
	// partOut, partSum and arrived are for contexts split into pieces.
	partOut, partSum, arrived cu.DevicePtr
}

// Spec returns what the cache was made from.
func (c *cache) Spec() kernels.CacheSpec { return c.spec }

// keys and values return a layer's memory.
func (c *cache) keys(layer int) cu.DevicePtr {
	return c.data + cu.DevicePtr(int64(2*layer)*c.side)
}

func (c *cache) values(layer int) cu.DevicePtr {
	return c.data + cu.DevicePtr(int64(2*layer+1)*c.side)
}

// NewCache returns zeroed KV memory. Only bf16 is stored.
func (b *Backend) NewCache(s kernels.CacheSpec) (kernels.Cache, error) {
	if s.Layers <= 0 || s.NumKVHeads <= 0 || s.HeadDim <= 0 || s.BlockSize <= 0 || s.NumBlocks <= 0 {
		return nil, fmt.Errorf("cuda: cache: %+v: every number must be positive", s)
	}
	if s.DType != kernels.BF16 {
		return nil, fmt.Errorf("cuda: cache of %v: the GPU stores keys and values as BF16 only", s.DType)
	}
	if int64(s.NumBlocks)*int64(s.BlockSize) > math.MaxInt32 {
		return nil, fmt.Errorf("cuda: cache of %d blocks of %d tokens: slots must fit 31 bits", s.NumBlocks, s.BlockSize)
	}
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := b.closeSteps(); err != nil { // they were recorded with another cache
		return nil, fmt.Errorf("cuda: cache: %w", err)
	}
	c := &cache{spec: s, backend: b, side: s.Bytes() / int64(2*s.Layers)}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: cache of %d bytes: %w", s.Bytes(), err), c.Close())
	}
	b.tables.kvHeads, b.tables.blockSize = s.NumKVHeads, s.BlockSize
	return c, nil
}

// open makes the memory.
func (c *cache) open() (err error) {
	b, s := c.backend, &c.spec
	if c.data, err = b.take(s.Bytes()); err != nil {
		return err
	}
	if err := cu.MemsetD8Async(c.data, 0, s.Bytes(), b.stream); err != nil {
		return err
	}
	parts := int64(b.maxParts()) * int64(s.NumKVHeads) * maxGroup
	arrived := int64(maxGraphRows) * int64(s.NumKVHeads) * 4
	for _, m := range []struct {
		p     *cu.DevicePtr
		bytes int64
	}{{&c.partOut, parts * int64(s.HeadDim) * 4}, {&c.partSum, parts * 8}, {&c.arrived, arrived}} {
		if *m.p, err = b.take(m.bytes); err != nil {
			return err
		}
	}
	if err := cu.MemsetD8Async(c.arrived, 0, arrived, b.stream); err != nil {
		return err
	}
	return b.stream.Synchronize()
}

// Close gives the memory back.
func (c *cache) Close() error {
	leave, err := c.backend.enter()
	if err != nil {
		return err
	}
	defer leave()
	// What was given up may run yet, and cuMemFree need not wait for it.
	if err := c.backend.stream.Synchronize(); err != nil {
		return fmt.Errorf("cuda: close cache: %w", err)
	}
	for _, p := range []*cu.DevicePtr{&c.data, &c.partOut, &c.partSum, &c.arrived} {
		if *p == 0 {
			continue
		}
		if err := cu.MemFree(*p); err != nil {
			return fmt.Errorf("cuda: close cache: %w", err)
		}
		*p = 0
	}
	return nil
}
