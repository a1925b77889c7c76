package sources

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/unix"
)

// machine is what an image must be for to run here.
type machine struct {
	os, arch string
	variants []string // of the processor, that its programs may be for: the best first
}

// thisMachine returns the machine that the launcher runs on.
func thisMachine() machine {
	m := machine{os: "linux", arch: runtime.GOARCH}
	switch m.arch {
	case "amd64":
		m.variants = amd64Variants(cpuid.CPU.X64Level())
	case "arm64":
		m.variants = arm64Variants(cpuid.CPU.ARM64Level())
	case "arm":
		var name unix.Utsname
		_ = unix.Uname(&name) // fails only for a bad address
		m.variants = armVariants(unix.ByteSliceToString(name.Machine[:]))
	default:
		m.variants = []string{""}
	}
	return m
}

// amd64Variants returns the variants that a processor of that level of the x86-64 psABI has. An image without a
// variant is for every processor, as one of v1.
func amd64Variants(level int) (variants []string) {
	for ; level > 1; level-- {
		variants = append(variants, fmt.Sprint("v", level))
	}
	return append(variants, "", "v1")
}

// arm64Variants returns the variants that a processor of that version of Arm's architecture has: 9.x has what 8.(x+5)
// has. An image without a variant is of v8.
func arm64Variants(major, minor int) (variants []string) {
	down := func(major, minor int) {
		for ; minor > 0; minor-- {
			variants = append(variants, fmt.Sprintf("v%d.%d", major, minor))
		}
		variants = append(variants, fmt.Sprintf("v%d", major), fmt.Sprintf("v%d.0", major))
	}
	if major > 8 {
		down(9, minor)
		minor += 5
	}
	down(8, minor)
	return append(variants, "")
}

// armVariants returns the variants that a machine of that name has, such as armv7l. An image without a variant may be
// of v7, as other runtimes have it.
func armVariants(name string) (variants []string) {
	version := 7
	if _, err := fmt.Sscanf(name, "armv%d", &version); err != nil && strings.HasPrefix(name, "aarch64") {
		version = 8
	}
	for ; version >= 5; version-- {
		variants = append(variants, fmt.Sprint("v", version))
		if version == 7 {
			variants = append(variants, "")
		}
	}
	return variants
}

// rank is how well an image fits the machine: 0 is best; ok is false for an image that may not run. An index in an
// index, or an image of which the index says nothing, comes last.
func (m machine) rank(d v1.Descriptor) (rank int, ok bool) {
	switch p := d.Platform; {
	case d.ArtifactType != "" && !types.MediaType(d.ArtifactType).IsConfig(): // a signature, for example
		return 0, false
	case p == nil || d.MediaType.IsIndex():
		return len(m.variants), true
	case p.OS != m.os || p.Architecture != m.arch:
		return 0, false
	default:
		variant := p.Variant
		if variant != "" && !strings.HasPrefix(variant, "v") { // "8" is also written
			variant = "v" + variant
		}
		rank = slices.Index(m.variants, variant)
		return rank, rank >= 0
	}
}

// fitting returns the images, or indexes of images, in an index that fit the machine best, each once, in the
// index's order.
func (m machine) fitting(list []v1.Descriptor) []v1.Descriptor {
	var found []v1.Descriptor
	best := len(m.variants)
	for _, d := range list {
		rank, ok := m.rank(d)
		same := func(other v1.Descriptor) bool { return other.Digest == d.Digest }
		if !ok || rank > best || rank == best && slices.ContainsFunc(found, same) {
			continue
		}
		if rank < best {
			found, best = nil, rank
		}
		found = append(found, d)
	}
	return found
}

// first returns the first of the images that fit the machine best.
func (m machine) first(list []v1.Descriptor) (v1.Descriptor, error) {
	found := m.fitting(list)
	if len(found) == 0 {
		return v1.Descriptor{}, m.noneOf(list)
	}
	return found[0], nil
}

// noneOf returns the error that an index has no image for the machine.
func (m machine) noneOf(list []v1.Descriptor) error {
	const most, long = 8, 32
	have := []string{}
	for _, d := range list {
		if p := d.Platform; p != nil && len(have) < most {
			have = append(have, fmt.Sprintf("%.*s", long, platformText(p.OS, p.Architecture, p.Variant)))
		}
	}
	return fmt.Errorf("0 images for this machine, %s; the index has %q", platformText(m.os, m.arch, m.variants[0]), have)
}

func platformText(os, arch, variant string) string {
	return strings.TrimSuffix(os+"/"+arch+"/"+variant, "/")
}
