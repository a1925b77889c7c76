// Package imageindex keeps the tags and digests of images that were pulled, in one file of JSON that is replaced in one
// step. The images themselves are in the launcher's store.
package imageindex

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"kurma.io/stager/launcher/jsonfile"

	"github.com/google/go-containerregistry/pkg/name"
)

// Image is an image of the index.
type Image struct {
	ID      string   `json:"id"`      // in the launcher's store
	Tags    []string `json:"tags"`    // HOST/NAME:TAG, sorted
	Digests []string `json:"digests"` // HOST/NAME@DIGEST, sorted
}

// Index is the index in a file. Its methods may be called at the same time; only one process may write the file.
type Index struct {
	path string
	mu   sync.Mutex // held while the file is changed
}

// Open returns the index in a file, which need not exist.
func Open(path string) *Index { return &Index{path: path} }

func (x *Index) read() (map[string]Image, error) {
	all := make(map[string]Image)
	if err := jsonfile.Read(x.path, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read index of images: %w", err)
	}
	return all, nil
}

func (x *Index) write(all map[string]Image) error {
	if err := jsonfile.WriteSynced(x.path, all); err != nil {
		return fmt.Errorf("write index of images: %w", err)
	}
	return nil
}

// All returns all images, sorted by their IDs.
func (x *Index) All() ([]Image, error) {
	all, err := x.read()
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(all), func(a, b Image) int { return strings.Compare(a.ID, b.ID) }), nil
}

// Find returns the image that an ID, a tag or a digest means; nil if the index has none.
func (x *Index) Find(ref string) (*Image, error) {
	all, err := x.read()
	if err != nil {
		return nil, err
	}
	if image, ok := all[ref]; ok {
		return &image, nil
	}
	parsed, err := Parse(ref)
	if err != nil {
		return nil, nil //nolint:nilerr // a text that is not a reference means no image
	}
	for _, image := range all {
		if slices.Contains(image.Tags, parsed.Tag) || slices.Contains(image.Digests, parsed.Digest) {
			return &image, nil
		}
	}
	return nil, nil
}

// Add notes that a reference to an image of that digest was pulled as the image with that ID. A tag means one image:
// the index takes it from another one.
func (x *Index) Add(id string, ref Reference, digest string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	all, err := x.read()
	if err != nil {
		return err
	}
	for other, image := range all {
		image.Tags = slices.DeleteFunc(image.Tags, func(tag string) bool { return tag == ref.Tag })
		all[other] = image
	}
	image := all[id]
	image.ID = id
	if ref.Tag != "" {
		image.Tags = addSorted(image.Tags, ref.Tag)
	}
	image.Digests = addSorted(image.Digests, ref.Repository+"@"+digest)
	all[id] = image
	return x.write(all)
}

func addSorted(list []string, text string) []string {
	list = append(list, text)
	slices.Sort(list)
	return slices.Compact(list)
}

// Remove removes an image with all of its tags and digests.
func (x *Index) Remove(id string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	all, err := x.read()
	if err != nil {
		return err
	}
	delete(all, id)
	return x.write(all)
}

// Reference is a reference to an image of a registry, with the registry's name.
type Reference struct {
	Repository string // HOST/NAME
	Tag        string // HOST/NAME:TAG; "" for a digest
	Digest     string // HOST/NAME@DIGEST; "" for a tag
}

// Parse parses [HOST/]NAME[:TAG][@DIGEST]. The host is docker.io and the tag latest by default; a digest overrides a
// tag.
func Parse(text string) (Reference, error) {
	parsed, err := name.ParseReference(text)
	if err != nil {
		return Reference{}, err
	}
	repository := parsed.Context().Name()
	if parsed.Context().RegistryStr() == name.DefaultRegistry {
		repository = "docker.io/" + parsed.Context().RepositoryStr()
	}
	if _, ok := parsed.(name.Digest); ok {
		return Reference{Repository: repository, Digest: repository + "@" + parsed.Identifier()}, nil
	}
	return Reference{Repository: repository, Tag: repository + ":" + parsed.Identifier()}, nil
}
