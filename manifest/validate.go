package manifest

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/spec"
)

// MaxName limits an app's name, in bytes. Names become file names with suffixes, and Linux allows
// file names of 255 bytes.
const MaxName = 200

// Validate checks that the parts of a manifest are consistent, and checks the values that appc's
// types do not check. An error is one line that names the field and its value.
func (m *Manifest) Validate() error {
	if err := m.validate(); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

func (m *Manifest) validate() error {
	if m.Images == nil {
		return fmt.Errorf("images: missing")
	}
	if m.AppImageOrder == nil {
		return fmt.Errorf("appImageOrder: missing")
	}
	if m.Pod == nil || m.Pod.PodManifest == nil {
		return fmt.Errorf("pod: missing")
	}
	if c := m.StagerConfig; c != nil && !bytes.HasPrefix(c, []byte("{")) {
		return fmt.Errorf("stagerConfig: %s: must be an object", strictjson.Show(c))
	}
	for _, id := range slices.Sorted(maps.Keys(m.Images)) {
		if err := validateID("images", id); err != nil {
			return err
		}
		if image := m.Images[id]; image == nil || image.ImageManifest == nil {
			return fmt.Errorf("%s: missing", imagePath(id))
		}
		if err := validateVersion(imagePath(id), m.Images[id].ACVersion); err != nil {
			return err
		}
	}
	if err := validateVersion("pod", m.Pod.ACVersion); err != nil {
		return err
	}
	return m.validateApps()
}

func (m *Manifest) validateApps() error {
	if len(m.Pod.Apps) == 0 {
		return fmt.Errorf("pod.apps: missing or empty: a pod has one app at least")
	}
	for i, app := range m.Pod.Apps {
		if err := m.validateApp(fmt.Sprintf("pod.apps[%d]", i), app); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manifest) validateApp(path string, runtime schema.RuntimeApp) error {
	name := runtime.Name.String()
	switch {
	case name == "":
		return fmt.Errorf("%s.name: missing", path)
	case len(name) > MaxName:
		return fmt.Errorf("%s.name: %s: longer than %d characters", path, strictjson.Quote(name), MaxName)
	case runtime.Image.ID.Empty():
		return fmt.Errorf("%s.image.id: missing", path)
	}
	id := runtime.Image.ID.String()
	if err := validateID(path+".image.id", id); err != nil {
		return err
	}
	image, ok := m.Images[id]
	if !ok {
		return fmt.Errorf("%s.image.id: %q: not in images", path, id)
	}
	switch {
	case runtime.App != nil:
		if err := validateSection(path+".app", runtime.App); err != nil {
			return err
		}
	case image.App == nil:
		return fmt.Errorf("%s.app: missing, and image %q has none either", path, id)
	default:
		if err := validateSection(imagePath(id)+".app", image.App); err != nil {
			return err
		}
	}
	return m.validateOrder(name, id)
}

// validateOrder checks the layers of one app. An image overrides its dependencies (ace.md,
// Filesystem Setup), so the app's own image comes first.
func (m *Manifest) validateOrder(app, image string) error {
	path := strictjson.Join("appImageOrder", app)
	order := m.AppImageOrder[app]
	if len(order) == 0 {
		return fmt.Errorf("%s: missing or empty", path)
	}
	for i, id := range order {
		at := fmt.Sprintf("%s[%d]", path, i)
		if err := validateID(at, id); err != nil {
			return err
		}
		layer, ok := m.Images[id]
		if !ok {
			return fmt.Errorf("%s: %q: not in images", at, id)
		}
		if err := validatePlatform(imagePath(id), layer.Labels, runtime.GOARCH); err != nil {
			return err
		}
	}
	if order[0] != image {
		return fmt.Errorf("%s[0]: %q: must be the app's own image, %q", path, order[0], image)
	}
	return nil
}

// validateID refuses an image ID that is not complete: a short ID does not identify a layer.
func validateID(path, id string) error {
	digits, ok := strings.CutPrefix(id, "sha512-")
	if !ok || len(digits) != 128 || strings.Trim(digits, "0123456789abcdef") != "" {
		return fmt.Errorf("%s: %s: an image ID is sha512- and 128 hexadecimal digits in lower case",
			path, strictjson.Quote(id))
	}
	return nil
}

// validateVersion checks an acVersion: only documents of the same major version are compatible
// (types.md, AC Version).
func validateVersion(path string, version types.SemVer) error {
	if version.Empty() {
		return fmt.Errorf("%s.acVersion: missing", path)
	}
	if version.Major != schema.AppContainerVersion.Major {
		return fmt.Errorf("%s.acVersion: %s: this stager knows %s",
			path, strictjson.Quote(version.String()), schema.AppContainerVersion)
	}
	return nil
}

// validateSection checks an app section that applies to an app of the pod.
func validateSection(path string, app *types.App) error {
	if len(app.Exec) == 0 {
		return fmt.Errorf("%s.exec: missing or empty: the app has no program to run", path)
	}
	if app.Exec[0] == "" {
		return fmt.Errorf("%s.exec[0]: \"\": names no program", path)
	}
	for i, arg := range app.Exec {
		if err := noNUL(fmt.Sprintf("%s.exec[%d]", path, i), arg); err != nil {
			return err
		}
	}
	for i, handler := range app.EventHandlers {
		for j, arg := range handler.Exec {
			if err := noNUL(fmt.Sprintf("%s.eventHandlers[%d].exec[%d]", path, i, j), arg); err != nil {
				return err
			}
		}
	}
	for i, variable := range app.Environment {
		if err := noNUL(fmt.Sprintf("%s.environment[%d].value", path, i), variable.Value); err != nil {
			return err
		}
	}
	for i, gid := range app.SupplementaryGIDs {
		if gid < 0 || gid > spec.MaxID {
			return fmt.Errorf("%s.supplementaryGIDs[%d]: %d: must be from 0 to %d", path, i, gid, int64(spec.MaxID))
		}
	}
	return noNUL(path+".workingDirectory", app.WorkingDirectory)
}

// noNUL refuses a string with a NUL character, which execve(2) and mount(2) would truncate.
func noNUL(path, s string) error {
	if strings.ContainsRune(s, 0) {
		return fmt.Errorf("%s: %s: has a NUL character", path, strictjson.Quote(s))
	}
	return nil
}

// validatePlatform refuses an image for another operating system or machine. An image without the
// labels is for all of them (aci.md, labels).
func validatePlatform(path string, labels types.Labels, goarch string) error {
	os, ok := labels.Get("os")
	if !ok {
		return nil
	}
	if os != "linux" {
		return fmt.Errorf("%s.labels: os %s: this stager runs linux images", path, strictjson.Quote(os))
	}
	arch, ok := labels.Get("arch")
	if !ok {
		return nil
	}
	runnable := architectures(goarch)
	if slices.Contains(runnable, arch) {
		return nil
	}
	return fmt.Errorf("%s.labels: arch %s: this machine runs %s",
		path, strictjson.Quote(arch), strings.Join(runnable, ", "))
}

// architectures returns the arch labels of programs that a machine can execute.
func architectures(goarch string) []string {
	switch goarch {
	case "amd64":
		return []string{"amd64", "i386"}
	case "arm64":
		return []string{"aarch64", "armv7l", "armv6l"}
	case "386":
		return []string{"i386"}
	case "arm":
		return []string{"armv7l", "armv6l"}
	}
	return []string{goarch} // ppc64, ppc64le and s390x have one name
}
