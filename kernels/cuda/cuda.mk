# The GPU build. Nothing of CUDA need be installed, and no GPU: compiler and headers
# come as pinned wheels into .cache/cuda, compiled objects stay in .cache/cuda-obj.

TOOLKIT  := $(CACHE)/cuda
CUDAHOME := $(TOOLKIT)/nvidia/cu13
NVCC     := $(CUDAHOME)/bin/nvcc
CUDAOBJ  := $(CACHE)/cuda-obj
CUDAOUT  := kernels/cuda/out
CUDASRC  := kernels/cuda/src
ATTNSRC  := kernels/cuda/attn

# The long form: -arch=sm_90a would also compile for plain sm_90, which lacks wgmma.
GENCODE  := -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_100,code=sm_100
HOPPER   := -gencode=arch=compute_90a,code=sm_90a
NVFLAGS  := -O3 -std=c++17
# Paths stay relative: the attention headers print theirs.
ATTNFLAGS := $(NVFLAGS) -Xcompiler -fPIC,-fvisibility=hidden -I.cache/cuda/attn -DNDEBUG
# The guard macro skips a header of test helpers that would want two more packages.
SM90FLAGS := --expt-relaxed-constexpr -diag-suppress=1444,3357 -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED -DFLASHINFER_CUTLASS_UTILS_CUH_

FATBINS := $(patsubst $(CUDASRC)/%.cu,$(CUDAOUT)/%.fatbin,$(wildcard $(CUDASRC)/*.cu))
ATTNLIB := $(CUDAOUT)/libattn.so

# Setting CGO_CFLAGS drops Go's default of -O2 -g. The first folder shadows cuda.h.
# Lazy binding, where a distribution's linker has another default: the management library's names are resolved when
# they are called, on machines that have them.
CUDAENV := CGO_ENABLED=1 CGO_LDFLAGS="-L$(CURDIR)/kernels/cuda/driver/lib -Wl,-z,lazy" \
	CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations -I$(CURDIR)/kernels/cuda/driver/include -I$(CUDAHOME)/include"

.PHONY: cuda
cuda: cuda-kernels ## Build bin/waybill-cuda: needs neither a GPU nor CUDA, fetches a compiler (119 MB).
	@mkdir -p bin
	$(CUDAENV) go build -trimpath -tags cuda -ldflags '-s -w -X main.version=$(VERSION)' -o bin/waybill-cuda ./cmd/waybill

.PHONY: cuda-kernels
cuda-kernels: $(FATBINS) $(ATTNLIB)

.PHONY: cuda-toolkit
cuda-toolkit:
	@kernels/cuda/get-toolkit.sh $(TOOLKIT)

.PHONY: cuda-env
cuda-env: ## Print what plain go commands with -tags cuda need: eval "$(make -s cuda-env)".
	@echo 'export $(CUDAENV)'

$(CUDAOUT)/%.fatbin: $(CUDASRC)/%.cu $(wildcard $(CUDASRC)/*.cuh) kernels/cuda/cuda.mk kernels/cuda/toolkit.txt | cuda-toolkit
	@mkdir -p $(CUDAOUT)
	$(NVCC) $(GENCODE) $(NVFLAGS) -fatbin $< -o $@

$(CUDAOBJ)/fa2.o: $(ATTNSRC)/fa2.cu $(ATTNSRC)/common.cuh $(ATTNSRC)/attn.h kernels/cuda/toolkit.txt | cuda-toolkit
	@mkdir -p $(CUDAOBJ)
	$(NVCC) $(GENCODE) $(ATTNFLAGS) -c $< -o $@

# Half of the whole build's time.
$(CUDAOBJ)/sm90.o: $(ATTNSRC)/sm90.cu $(ATTNSRC)/common.cuh $(ATTNSRC)/attn.h kernels/cuda/toolkit.txt | cuda-toolkit
	@mkdir -p $(CUDAOBJ)
	$(NVCC) $(HOPPER) $(ATTNFLAGS) $(SM90FLAGS) -c $< -o $@

# Everything it needs is inside: no C++ runtime, no CUDA runtime, no libcuda.
$(ATTNLIB): $(CUDAOBJ)/fa2.o $(CUDAOBJ)/sm90.o $(ATTNSRC)/exports.map
	@mkdir -p $(CUDAOUT)
	g++ -shared -o $@ $(filter %.o,$^) -L$(CUDAHOME)/lib -lcudart_static -static-libstdc++ -static-libgcc -lpthread -ldl -lrt \
		-Wl,--version-script=$(ATTNSRC)/exports.map -Wl,-z,defs -s

# The binaries that a GPU machine without Go needs, in one folder.
GPUDIR := .artifacts/gpu

.PHONY: cuda-tests
cuda-tests: cuda-kernels ## Build the tests that run on a GPU machine into .artifacts/gpu.
	@mkdir -p $(GPUDIR)
	$(CUDAENV) go test -trimpath -tags cuda -ldflags '-s -w' -c -o $(GPUDIR)/kernels.test ./kernels/cuda
	$(CUDAENV) go test -trimpath -tags cuda -ldflags '-s -w' -c -o $(GPUDIR)/model.test ./model

.PHONY: cuda-bundle
cuda-bundle: cuda cuda-tests ## Pack what a GPU machine without Go needs into .artifacts/gpu.tgz. FAULTS=1: with a server that can be made to fail.
	@mkdir -p $(GPUDIR)/model/testdata
	cp bin/waybill-cuda $(GPUDIR)/
	rm -f $(GPUDIR)/waybill-cuda-faults
	$(if $(FAULTS),$(CUDAENV) go build -trimpath -tags 'cuda faults' -ldflags '-s -w' -o $(GPUDIR)/waybill-cuda-faults ./cmd/waybill)
	cp -r model/testdata/tiny $(GPUDIR)/model/testdata/
	cp -r kernels/cuda/bundle/* $(GPUDIR)/
	[ -d $(CACHE)/qwen3-vocabulary ] || python3 kernels/cuda/bundle/vocabulary.py model/testdata/tiny/qwen3 \
		$(addprefix model/tokenizer/testdata/,qwen3-vocabulary.gz qwen3-tokenizer.json) $(CACHE)/qwen3-vocabulary
	python3 kernels/cuda/bundle/shapes.py $(CACHE)/qwen3-vocabulary $(GPUDIR)/shapes
	tar czf $(GPUDIR).tgz -C .artifacts gpu
	@du -m $(GPUDIR).tgz | awk '{print $$1 " MB"; if ($$1 > $(if $(FAULTS),60,40)) {print "too large"; exit 1}}'

.PHONY: gpu-report
gpu-report: cuda-bundle ## Measure this machine's GPU: writes .artifacts/gpu-report/report.md and report.json.
	cd $(GPUDIR) && ./waybill-cuda gpu-report --out $(CURDIR)/.artifacts/gpu-report

.PHONY: cuda-vet
cuda-vet: cuda ## Vet and test what can be without a GPU.
	$(CUDAENV) go vet -tags cuda ./...
	$(CUDAENV) go test -tags cuda ./kernels/cuda/driver ./kernels/cuda/telemetry
	$(CUDAENV) go test -tags cuda -run '^TestHost' ./kernels/cuda
	@$(call needs-no-driver,bin/waybill-cuda)

# The dynamic symbols stay in a stripped binary. dlopen must be among those that are
# wanted, else nothing was read; no call of the driver may be: it is found at run time.
needs-no-driver = nm -D -u $(1) | grep -q ' dlopen' && ! nm -D -u $(1) | grep ' cu[A-Z]' && ! readelf -d $(1) | grep -i 'NEEDED.*cu[db]' || \
	{ echo '$(1) needs a CUDA library: is a driver call missing from kernels/cuda/driver/driver_syms.h?'; exit 1; }

# What a machine without a GPU can check in some minutes: this repository's kernels
# compiled for one architecture, without the attention library (most of the
# time), into a folder of their own that the build sees in place of the real one.
CHECKDIR    := $(CACHE)/cuda-check
CHECKFATBIN := $(patsubst $(CUDASRC)/%.cu,$(CHECKDIR)/%.fatbin,$(wildcard $(CUDASRC)/*.cu))

.PHONY: cuda-check
cuda-check: cuda-toolkit ## Compile the GPU's side for one architecture, vet and link it: minutes, no GPU.
	@$(MAKE) --no-print-directory -j2 cuda-check-built

.PHONY: cuda-check-built
cuda-check-built: $(CHECKFATBIN)
	@touch $(CHECKDIR)/libattn.so
	@python3 -c 'import json, sys; print(json.dumps({"Replace": {sys.argv[1] + "/" + f.rsplit("/", 1)[1]: f for f in sys.argv[2:]}}))' \
		$(CURDIR)/$(CUDAOUT) $(CHECKFATBIN) $(CHECKDIR)/libattn.so >$(CHECKDIR)/overlay.json
	$(CUDAENV) go vet -tags cuda -overlay $(CHECKDIR)/overlay.json ./kernels/cuda/... ./model ./cmd/waybill
	$(CUDAENV) go build -tags cuda -overlay $(CHECKDIR)/overlay.json -o $(CHECKDIR)/waybill-cuda ./cmd/waybill
	$(CUDAENV) go test -tags cuda ./kernels/cuda/driver ./kernels/cuda/telemetry
	$(CUDAENV) go test -tags cuda -overlay $(CHECKDIR)/overlay.json -run '^TestHost' ./kernels/cuda
	@$(call needs-no-driver,$(CHECKDIR)/waybill-cuda)

$(CHECKDIR)/%.fatbin: $(CUDASRC)/%.cu $(wildcard $(CUDASRC)/*.cuh)
	@mkdir -p $(CHECKDIR)
	$(NVCC) -gencode=arch=compute_90a,code=sm_90a $(NVFLAGS) -Werror all-warnings -fatbin $< -o $@
