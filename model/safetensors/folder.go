package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

const (
	// singleName and indexName are the names that Hugging Face folders use.
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
	// maxIndexBytes is ten times the index of the largest models published.
	maxIndexBytes = 64 << 20
	// maxShards bounds the mappings; the largest models published have some 200.
	maxShards = 4096
)

// Folder is the tensors of a model folder, from one file or from many shards.
type Folder struct {
	files   []*File
	tensors map[string]Tensor
}

// OpenFolder maps all weight files of the folder dir.
func OpenFolder(dir string) (*Folder, error) {
	names, index, err := shardNames(dir)
	if err != nil {
		return nil, err
	}
	d := &Folder{tensors: make(map[string]Tensor, len(index))}
	if err := d.open(dir, names, index); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// open maps the shards and checks that they hold what the index says.
func (d *Folder) open(dir string, names []string, index map[string]string) error {
	for _, name := range names {
		f, err := Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		d.files = append(d.files, f)
		// Which of two would be right? Refuse rather than take the last.
		for _, t := range f.Tensors() {
			if other, ok := d.tensors[t.Name]; ok {
				return fmt.Errorf("safetensors: tensor %q is in both %s and %s", t.Name, other.File, t.File)
			}
			d.tensors[t.Name] = t
		}
	}
	// Tensors in a shard that the index leaves out are the loader's to refuse.
	for name, shard := range index {
		t, ok := d.tensors[name]
		if !ok || filepath.Base(t.File) != shard {
			return fmt.Errorf("safetensors: %s: tensor %q is not in %s", filepath.Join(dir, indexName), name, shard)
		}
	}
	return nil
}

// Close unmaps all files.
func (d *Folder) Close() error {
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.Close())
	}
	d.files, d.tensors = nil, nil
	return errors.Join(errs...)
}

// Tensor returns the tensor called name.
func (d *Folder) Tensor(name string) (Tensor, bool) {
	t, ok := d.tensors[name]
	return t, ok
}

// Names returns the names of all tensors, sorted.
func (d *Folder) Names() []string {
	names := make([]string, 0, len(d.tensors))
	for name := range d.tensors {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// shardNames returns the weight files of a folder, and the index if it has one.
func shardNames(dir string) ([]string, map[string]string, error) {
	_, err := os.Stat(filepath.Join(dir, singleName))
	if err == nil {
		return []string{singleName}, nil, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("safetensors: %w", err)
	}
	path := filepath.Join(dir, indexName)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("safetensors: %s has neither %s nor %s", dir, singleName, indexName)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("safetensors: %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIndexBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: %w", err)
	}
	names, index, err := parseIndex(data)
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	return names, index, nil
}

// parseIndex returns the shards that an index names, sorted, and its map from
// tensor to shard.
func parseIndex(data []byte) ([]string, map[string]string, error) {
	if len(data) > maxIndexBytes {
		return nil, nil, fmt.Errorf("more than %d bytes", maxIndexBytes)
	}
	var doc struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, nil, err
	}
	if len(doc.WeightMap) == 0 {
		return nil, nil, fmt.Errorf("weight_map is missing or empty")
	}
	seen := map[string]bool{}
	var names []string
	for tensor, shard := range doc.WeightMap {
		if seen[shard] {
			continue
		}
		if err := checkShardName(shard); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", tensor, err)
		}
		if len(names) == maxShards {
			return nil, nil, fmt.Errorf("more than %d shards", maxShards)
		}
		seen[shard] = true
		names = append(names, shard)
	}
	sort.Strings(names)
	return names, doc.WeightMap, nil
}

// checkShardName allows plain file names only: an index comes from whoever made
// the model and must not name files outside the folder. Links in the folder are
// followed, since the hub's cache consists of them.
func checkShardName(name string) error {
	if !strings.HasSuffix(name, ".safetensors") || strings.ContainsAny(name, "/\\\x00:") {
		return fmt.Errorf("shard %q is not the plain name of a .safetensors file", name)
	}
	return nil
}
