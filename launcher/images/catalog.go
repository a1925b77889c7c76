package images

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"kurma.io/stager/signing"

	"github.com/appc/spec/schema/types"
)

// Catalog decides which image of a store a name means. It is for one use: it remembers what it
// has warned of. It must not be used by several goroutines at once.
//
// Of the images with a name that fit the machine, it takes the newest by version, and of
// several with this version the latest import. If a trusted key has signed any of
// them, those that no trusted key has signed do not count, whatever their version: anyone can
// call an image by any name.
type Catalog struct {
	store    *Store
	ring     signing.KeyRing
	pins     map[string]string
	warnings []string
}

// Catalog returns a catalog of the store. Ring holds the keys that are trusted. Pins maps names
// to an ID or a version: a name that is in it means no other image.
func (s *Store) Catalog(ring signing.KeyRing, pins map[string]string) *Catalog {
	return &Catalog{store: s, ring: ring, pins: pins}
}

// Warnings returns a line for each name that was looked up and that is ambiguous: no trusted
// key has signed its image, or not all images of that name are signed by one key.
func (c *Catalog) Warnings() []string { return c.warnings }

// Get returns the image with that whole ID, see Store.Get.
func (c *Catalog) Get(id string) (*Image, error) { return c.store.Get(id) }

// FindID returns the ID of the image that a person means: by a complete ID, by the
// unique start of one, with or without "sha512-", or by NAME[:VERSION]. Where no image has the name, it may be Docker's
// short one: redis for docker.io/library/redis. If ref is an ID or its start, the image may be damaged.
func (c *Catalog) FindID(ref string) (string, error) {
	if isID(ref) {
		return ref, nil
	}
	sound, damaged, err := c.store.list()
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(ref, idPrefix) && len(ref) > len(idPrefix) {
		return findPrefix(append(sound, damaged...), ref)
	}
	image, err := c.choose(sound, nameOf(ref), versionOf(ref))
	if errors.Is(err, ErrNotFound) && isBareID(ref) {
		if id, err := findPrefix(append(sound, damaged...), idPrefix+ref); !errors.Is(err, ErrNotFound) {
			return id, err
		}
	}
	if whole := wholeName(ref); errors.Is(err, ErrNotFound) && whole != "" {
		image, err = c.choose(sound, nameOf(whole), versionOf(whole))
	}
	if err != nil {
		return "", hintAtDamaged(damaged, fmt.Errorf("%w: %q", err, ref))
	}
	return image.ID, nil
}

// isBareID reports whether ref may be an ID or its start without "sha512-", as people copy it.
func isBareID(ref string) bool {
	const shortest = 4
	return len(ref) >= shortest && strings.Trim(ref, "0123456789abcdef") == ""
}

// wholeName returns the reference that Docker's short one stands for, or "" if ref names a host.
func wholeName(ref string) string {
	switch host, _, more := strings.Cut(ref, "/"); {
	case !more:
		return "docker.io/library/" + ref
	case strings.Contains(host, ".") || strings.Contains(host, ":") || host == "localhost":
		return ""
	}
	return "docker.io/" + ref
}

func nameOf(ref string) string {
	name, _, _ := strings.Cut(ref, ":")
	return name
}

// Is reports whether ref may mean the image: by its ID, the start of it, or NAME[:VERSION].
func (i *Image) Is(ref string) bool {
	return strings.HasPrefix(i.ID, ref) || isBareID(ref) && strings.HasPrefix(i.ID, idPrefix+ref) ||
		i.Manifest.Name == nameOf(ref) && i.Manifest.hasLabels(versionOf(ref))
}

// versionOf returns the labels that a reference asks for.
func versionOf(ref string) map[string]string {
	if _, version, _ := strings.Cut(ref, ":"); version != "" {
		return map[string]string{"version": version}
	}
	return nil
}

// Find returns the image that FindID finds.
func (c *Catalog) Find(ref string) (*Image, error) {
	id, err := c.FindID(ref)
	if err != nil {
		return nil, err
	}
	return c.store.Get(id)
}

// FindNamed returns the image that NAME[:VERSION] means, or ErrNotFound. Unlike Find it takes no ID.
func (c *Catalog) FindNamed(ref string) (*Image, error) { return c.find(nameOf(ref), versionOf(ref)) }

// FindLabelled returns the image with the name and all of the labels, or ErrNotFound.
func (c *Catalog) FindLabelled(name string, want types.Labels) (*Image, error) {
	return c.find(name, labelsOf(want))
}

func (c *Catalog) find(name string, labels map[string]string) (*Image, error) {
	sound, damaged, err := c.store.list()
	if err != nil {
		return nil, err
	}
	image, err := c.choose(sound, name, labels)
	if err != nil {
		err = hintAtDamaged(damaged, fmt.Errorf("%w: %q", err, describe(name, labels)))
	}
	return image, err
}

// choose returns the image of all that the name means. An error does not name it.
func (c *Catalog) choose(all []*Image, name string, labels map[string]string) (*Image, error) {
	found, err := c.candidates(all, name, labels)
	if err != nil {
		return nil, err
	}
	if isID(c.pins[name]) {
		return found[0], nil
	}
	signers := make([]string, len(found))
	for i, image := range found {
		signers[i], err = c.store.Signer(image, c.ring)
		if err != nil {
			signers[i] = "" // whatever the reason: nothing shows where it comes from
		}
	}
	chosen := max(slices.IndexFunc(signers, func(by string) bool { return by != "" }), 0)
	c.warn(name, found, signers, chosen)
	return found[chosen], nil
}

// candidates returns the images that a name may mean, the best first, or an error.
func (c *Catalog) candidates(all []*Image, name string, labels map[string]string) ([]*Image, error) {
	var found []*Image
	others, pin := 0, c.pins[name]
	for _, image := range all {
		switch {
		case image.Manifest.Name != name || !image.Manifest.hasLabels(labels) || !fits(image.Manifest, labels):
		case pin != "" && image.ID != pin && image.Manifest.Version() != pin:
			others++
		default:
			found = append(found, image)
		}
	}
	if len(found) == 0 && others > 0 {
		return nil, fmt.Errorf("%w, because imagePins in the configuration wants %s", ErrNotFound, pin)
	}
	if len(found) == 0 {
		return nil, ErrNotFound
	}
	slices.SortFunc(found, newestFirst)
	return found, nil
}

// newestFirst orders images by version, and those of one version by their imports.
func newestFirst(a, b *Image) int {
	return cmp.Or(compareVersions(b.Manifest.Version(), a.Manifest.Version()), latestFirst(a, b))
}

// fits reports whether an image can run on this machine, if the labels leave that open.
func fits(m *Manifest, labels map[string]string) bool {
	arch := runtime.GOARCH
	if other, known := map[string]string{"386": "i386", "arm64": "aarch64"}[arch]; known {
		arch = other
	}
	for label, machine := range map[string]string{"os": runtime.GOOS, "arch": arch} {
		_, asked := labels[label]
		if have := m.Labels[label]; !asked && have != "" && have != machine {
			return false
		}
	}
	return true
}

// expectsSignature reports whether a key is trusted by a prefix of that name. For other names, an unsigned image is
// the importer's choice.
func (c *Catalog) expectsSignature(name string) bool {
	return slices.ContainsFunc(c.ring.For(name).Keys(), func(k signing.Trusted) bool { return k.Prefix != "" })
}

// warn adds a line if it is not clear who serves a name.
func (c *Catalog) warn(name string, found []*Image, signers []string, chosen int) {
	image := found[chosen]
	var text string
	switch served := slices.Compact(slices.Sorted(slices.Values(signers))); {
	case signers[chosen] == "" && image.Record.Seal == "" && !c.expectsSignature(image.Manifest.Name):
		return
	case signers[chosen] == "" && image.Record.Seal == "":
		text = fmt.Sprintf("image %q (%s) is not signed", image.Versioned(), shortID(image))
	case signers[chosen] == "":
		text = fmt.Sprintf("image %q (%s) has no good signature by a trusted key", image.Versioned(), shortID(image))
	case served[0] == "":
		text = fmt.Sprintf("images called %q without a good signature by a trusted key are ignored; %q (%s) is used",
			name, image.Versioned(), shortID(image))
	case len(served) > 1:
		text = fmt.Sprintf("images called %q are signed by %d keys; %q (%s) is used, signed by %s; imagePins in the "+
			"configuration can pin one",
			name, len(served), image.Versioned(), shortID(image), signers[chosen])
	default:
		return
	}
	if !slices.Contains(c.warnings, text) {
		c.warnings = append(c.warnings, text)
	}
}

// Stager returns the newest image by version that ref means, an ID, the start of one or
// NAME[:VERSION], and that can be trusted as a stager, see Store.TrustStager. It warns of newer
// images of that name that cannot, and that they do not count.
func (c *Catalog) Stager(ref string) (*Image, error) {
	return c.trusted(ref, "stager", c.store.TrustStager)
}

// Plugin is Stager for a network plugin: it must have an app, and its dependencies are trusted in the same way.
func (c *Catalog) Plugin(ref string) (*Image, error) {
	return c.trusted(ref, "plugin", func(image *Image, _ signing.KeyRing) error { return c.trustPlugin(image) })
}

func (c *Catalog) trusted(ref, kind string, check func(*Image, signing.KeyRing) error) (*Image, error) {
	if strings.HasPrefix(ref, idPrefix) {
		image, err := c.Find(ref)
		if err != nil {
			return nil, fmt.Errorf("find %s image: %w", kind, err)
		}
		return image, check(image, c.ring)
	}
	sound, damaged, err := c.store.list()
	if err != nil {
		return nil, err
	}
	found, err := c.candidates(sound, nameOf(ref), versionOf(ref))
	if err != nil {
		return nil, fmt.Errorf("find %s image: %w", kind, hintAtDamaged(damaged, fmt.Errorf("%w: %q", err, ref)))
	}
	return c.firstTrusted(found, check)
}

// firstTrusted returns the first image that passes the check, and warns of those before it.
func (c *Catalog) firstTrusted(found []*Image, check func(*Image, signing.KeyRing) error) (*Image, error) {
	var refused []error
	for _, image := range found {
		err := check(image, c.ring)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		for _, err := range refused {
			c.warnings = append(c.warnings, fmt.Sprintf("%v; the image is ignored", err))
		}
		return image, nil
	}
	if len(refused) > 1 {
		return nil, fmt.Errorf("%w; %d older images cannot be trusted either", refused[0], len(refused)-1)
	}
	return nil, refused[0]
}

// Versioned returns the image's NAME:VERSION, or its NAME if it has no version.
func (i *Image) Versioned() string {
	if version := i.Manifest.Version(); version != "" {
		return i.Manifest.Name + ":" + version
	}
	return i.Manifest.Name
}

func shortID(image *Image) string { return image.ID[:min(len(image.ID), len(idPrefix)+12)] }

// hintAtDamaged adds to ErrNotFound that a damaged image, with an unknown name, may be the one.
func hintAtDamaged(damaged []*Image, err error) error {
	if len(damaged) == 0 || !errors.Is(err, ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w; a damaged image may have the name, see image list", err)
}

func findPrefix(all []*Image, prefix string) (string, error) {
	var found []string
	for _, image := range all {
		if strings.HasPrefix(image.ID, prefix) {
			found = append(found, image.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%w: %q", ErrNotFound, prefix)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%q is the start of %d image IDs", prefix, len(found))
}

func describe(name string, labels map[string]string) string {
	words := []string{name}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, label+"="+labels[label])
	}
	return shorten(strings.Join(words, ","))
}
