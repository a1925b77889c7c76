package sources

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entries are the entries of an index for ARCH[/VARIANT] of linux, "-" without a platform, "index" of an index.
func entries(platforms ...string) (list []v1.Descriptor) {
	for i, text := range platforms {
		d := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: v1.Hash{Algorithm: "sha256", Hex: fmt.Sprint(i)}}
		arch, variant, _ := strings.Cut(text, "/")
		switch text {
		case "-":
		case "index":
			d.MediaType = types.OCIImageIndex
		case "signature":
			d.ArtifactType = "application/vnd.example.signature"
		default:
			d.Platform = &v1.Platform{OS: "linux", Architecture: arch, Variant: variant}
		}
		list = append(list, d)
	}
	return list
}

// Of an index, the image is taken that is made for most of what the processor has, and none that the processor lacks.
func TestTheBestImageForTheMachineIsTaken(t *testing.T) {
	amd64 := func(level int) machine { return machine{"linux", "amd64", amd64Variants(level)} }
	arm64 := func(major, minor int) machine { return machine{"linux", "arm64", arm64Variants(major, minor)} }
	arm := func(name string) machine { return machine{"linux", "arm", armVariants(name)} }
	for _, tt := range []struct {
		here      machine
		platforms string
		want      string // of the entries, by their numbers
	}{
		{amd64(3), "amd64/v9 amd64", "1"},
		{amd64(3), "amd64 amd64/v4 amd64/v3 amd64/v2", "2"},
		{amd64(2), "amd64 amd64/v4 amd64/v3 amd64/v2", "3"},
		{amd64(1), "amd64/v2 amd64/v1", "1"},
		{amd64(0), "amd64/v2 amd64", "1"},
		{amd64(4), "amd64/v9", ""},
		{amd64(4), "amd64 amd64", "0 1"},
		{amd64(4), "amd64/x 386 arm64/v8", ""},
		{amd64(4), "- amd64", "1"},
		{amd64(4), "signature index", "1"},
		{amd64(4), "-", "0"},
		{arm64(8, 0), "arm64/v9 arm64/v8", "1"},
		{arm64(8, 0), "arm/v7 arm64", "1"},
		{arm64(8, 0), "arm64/8", "0"},
		{arm64(8, 2), "arm64/v8 arm64/v8.3 arm64/v8.2 arm64/v8.1", "2"},
		{arm64(9, 0), "arm64/v8 arm64/v9.1 arm64/v9", "2"},
		{arm64(9, 0), "arm64/v8 arm64/v8.5 arm64/v8.6", "1"},
		{arm("armv7l"), "arm/v8 arm/v6 arm/v7", "2"},
		{arm("armv6l"), "arm/v7 arm arm/v5", "2"},
		{arm("armv6l"), "arm/v7", ""},
		{arm("armv8l"), "arm/v7 arm/v8", "1"},
		{arm("aarch64"), "arm/v6 arm/v8", "1"},
	} {
		var got []string
		for _, d := range tt.here.fitting(entries(strings.Fields(tt.platforms)...)) {
			got = append(got, d.Digest.Hex)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%v of %s: %v, want %s", tt.here, tt.platforms, got, tt.want)
		}
	}
}

// An index that has nothing for the machine is an error that says what it has.
func TestAnIndexWithoutAnImageForTheMachine(t *testing.T) {
	_, err := machine{"linux", "amd64", amd64Variants(1)}.first(entries("arm64/v8", "amd64/v2\x1b"))
	want := `0 images for this machine, linux/amd64; the index has ["linux/arm64/v8" "linux/amd64/v2\x1b"]`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Error(diff)
	}
}

// variants is an index whose first image no processor may run, and whose second one may; either prints its number.
func variants(t *testing.T) v1.ImageIndex {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for i, variant := range []string{"v99", ""} {
		image, err := mutate.Config(empty.Image, v1.Config{Cmd: []string{fmt.Sprint("/", i)}})
		if err != nil {
			t.Fatal(err)
		}
		platform := &v1.Platform{OS: "linux", Architecture: runtime.GOARCH, Variant: variant}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index
}

// Registries and layouts have images for several variants of a processor, also in an index that an index lists.
func TestAVariantThatTheProcessorLacksIsPassedOver(t *testing.T) {
	host := newRegistry(t).host
	nested := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: variants(t)})
	for i, index := range []v1.ImageIndex{variants(t), nested} {
		ref, err := name.ParseReference(fmt.Sprintf("%s/app:%d", host, i))
		if err == nil {
			err = remote.WriteIndex(ref, index)
		}
		dir := t.TempDir()
		if err == nil {
			_, err = layout.Write(dir, index)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range []string{"docker://" + ref.String(), dir} {
			image, err := newFetcher(t).Import(t.Context(), source)
			if err != nil {
				t.Error(err)
			} else if exec := image.Manifest.App.Exec; exec[0] != "/1" {
				t.Errorf("%s: the image of %v is taken", source, exec)
			}
		}
	}
}

// An index may say nothing of its images: then their configurations say for which machine they are.
func TestOfAnIndexWithoutPlatformsTheConfigurationDecides(t *testing.T) {
	index := v1.ImageIndex(empty.Index)
	for i, arch := range []string{"s390x", runtime.GOARCH} {
		image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch, RootFS: v1.RootFS{Type: "layers"}, Config: v1.Config{Cmd: []string{fmt.Sprint("/", i)}}})
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1}})
	}
	nested := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index})
	host := newRegistry(t).host
	for i, top := range []v1.ImageIndex{index, nested} {
		manifest, err := index.IndexManifest()
		if err != nil || manifest.Manifests[0].Platform != nil {
			t.Fatal(manifest, err)
		}
		ref, err := name.ParseReference(fmt.Sprintf("%s/app:%d", host, i))
		if err == nil {
			err = remote.WriteIndex(ref, top)
		}
		if err != nil {
			t.Fatal(err)
		}
		f := newFetcher(t)
		image, err := f.Import(t.Context(), "docker://"+ref.String())
		if err != nil {
			t.Error(err)
		} else if exec := image.Manifest.App.Exec; exec[0] != "/1" {
			t.Errorf("%s: the image of %v is taken", ref, exec)
		}
		f.checkCache(t)
	}
}
