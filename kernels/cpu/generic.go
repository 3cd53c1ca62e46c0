package cpu

import "unsafe"

// generic is the kernel set in plain Go, for CPUs without assembly. Loops are in
// the order of the assembly; sums are rounded after the product, where the
// assembly fuses the two.
var generic = kernelSet{
	name:         "generic",
	heights:      []int{4, 1},
	floatHeights: []int{4, 1},
	quantize:     quantizeGeneric,
	halves:       halvesGeneric,
	kScales:      kScalesGeneric,
	narrow:       narrow,
	sumSquares:   sumSquaresGeneric,
	add:          addGeneric,
	scale:        scaleGeneric,
	blend:        blendGeneric,
	silu:         siluGeneric,
	gate:         gateRows(siluGeneric),
	rotate:       rotateGeneric,
	max:          maxGeneric,
	exp:          expGeneric,
}

func init() {
	for _, h := range generic.heights {
		generic.symmetric[h] = int8Generic(h, 1, false)
		generic.affine[h] = int8Generic(h, 1, true)
		generic.halfBlocks[h] = int8Generic(h, 2, false)
		generic.float[tileF32][h] = floatGeneric(h, tileF32)
		generic.float[tileF16][h] = floatGeneric(h, tileF16)
		generic.float[tileBF16][h] = floatGeneric(h, tileBF16)
	}
	for f := tileQ4; f < numFormats; f++ {
		generic.unpackQuants[f] = unpackGeneric(f)
	}
}

// unpackGeneric returns the function that unpacks the quants of f's tiles.
func unpackGeneric(f format) func(dst, tile pointer, blocks int) {
	return func(dst, tile pointer, blocks int) {
		f.unpackQuants(unsafe.Slice((*byte)(dst), blocks*quantTile), unsafe.Slice((*byte)(tile), blocks*f.quantBytes()), blocks)
	}
}

// int8Generic returns the kernel for panels of height h and parts scales in
// every block.
func int8Generic(h, parts int, affine bool) int8Kernel {
	return func(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int) {
		q := unsafe.Slice((*byte)(quants), blocks*quantTile)
		scale := unsafe.Slice((*float32)(scales), blocks*parts*tileRows)
		var min []float32
		if affine {
			min = unsafe.Slice((*float32)(mins), blocks*tileRows)
		}
		for m := range h {
			var sum [tileRows]float32
			for b := range blocks {
				at := unsafe.Add(panel, b*h*panelRowBytes)
				a := unsafe.Slice((*int8)(unsafe.Add(at, m*quantElems)), quantElems)
				meta := unsafe.Add(at, h*quantElems+4*m)
				aScale := *(*float32)(meta)
				aSum := *(*float32)(unsafe.Add(meta, 4*h))
				for part := range parts {
					var dot [tileRows]int32
					if !affine {
						bias := *(*int32)(unsafe.Add(meta, 4*h*(1+parts+part)))
						for r := range dot {
							dot[r] = bias
						}
					}
					for g := part * 8 / parts; g < (part+1)*8/parts; g++ {
						lanes := q[b*quantTile+64*g:][:64]
						a0, a1, a2, a3 := int32(a[4*g]), int32(a[4*g+1]), int32(a[4*g+2]), int32(a[4*g+3])
						for r := range dot {
							l := lanes[4*r : 4*r+4]
							dot[r] += int32(l[0])*a0 + int32(l[1])*a1 + int32(l[2])*a2 + int32(l[3])*a3
						}
					}
					for r, s := range scale[(b*parts+part)*tileRows:][:tileRows] {
						// The conversion keeps compilers for other CPUs from fusing.
						sum[r] += float32(float32(s*aScale) * float32(dot[r]))
					}
				}
				if affine {
					for r, v := range min[b*tileRows:][:tileRows] {
						sum[r] += float32(v * aSum)
					}
				}
			}
			*(*[tileRows]float32)(unsafe.Add(dst, m*stride)) = sum
		}
	}
}

// floatGeneric returns the kernel for panels of height h and tiles of f.
func floatGeneric(h int, f format) floatKernel {
	return func(dst pointer, stride int, tile, panel pointer, cols int) {
		w := unsafe.Slice((*byte)(tile), cols*tileRows*f.floatBytes())
		a := unsafe.Slice((*float32)(panel), cols*h)
		var sum, part [maxPanel][tileRows]float32
		for at := 0; at < cols; at += quantElems {
			clear(part[:h])
			for k := at; k < min(at+quantElems, cols); k++ {
				var lanes [tileRows]float32
				f.lanes(&lanes, w, k)
				for m := range h {
					v := a[k*h+m]
					for r, l := range lanes {
						part[m][r] += float32(l * v)
					}
				}
			}
			for m := range h {
				for r, v := range part[m] {
					sum[m][r] += v
				}
			}
		}
		for m := range h {
			*(*[tileRows]float32)(unsafe.Add(dst, m*stride)) = sum[m]
		}
	}
}

// lanes sets dst to column k of a float tile.
func (f format) lanes(dst *[tileRows]float32, tile []byte, k int) {
	for r := range dst {
		i := k*tileRows + r
		switch f {
		case tileF32:
			dst[r] = *(*float32)(unsafe.Pointer(&tile[4*i]))
		case tileF16:
			dst[r] = half(tile, i)
		default:
			dst[r] = bfloat(tile, i)
		}
	}
}
