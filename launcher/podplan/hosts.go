package podplan

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	decision "kurma.io/stager/plan"
	"kurma.io/stager/spec"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
)

// hostsTarget is where the apps of a pod on a network have its hosts file.
const hostsTarget = "/etc/hosts"

// ParseHost reads a name that a pod's hosts file is to have, and its address: NAME:ADDRESS.
func ParseHost(text string) (pods.Host, error) {
	name, address, found := strings.Cut(text, ":")
	if !found || !regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`).MatchString(name) || len(name) > 253 {
		return pods.Host{}, errors.New("want NAME:ADDRESS")
	}
	if strings.EqualFold(name, "localhost") {
		return pods.Host{}, errors.New("localhost is the pod itself")
	}
	if inner, ok := strings.CutPrefix(address, "["); ok {
		address = strings.TrimSuffix(inner, "]")
	}
	parsed, err := netip.ParseAddr(address)
	if err != nil || parsed.Zone() != "" {
		return pods.Host{}, fmt.Errorf("%q is not an IP address", address)
	}
	return pods.Host{Name: name, Address: parsed}, nil
}

// addHosts gives the apps of a pod that is connected to networks, or has added hosts, its hosts file, as a volume, and
// the pod the name that is in it. An app with another volume that covers the file, or would be covered by it, keeps
// that, and one whose image has no place for the file keeps what it has; with added hosts either is an error.
func (p *Planner) addHosts(d *document, plan *pods.Plan, m *manifest.Manifest) error {
	plan.Hostname = decision.HostnameOf(plan.Name)
	if name, asked := d.pod.Annotations.Get(names.HostnameAnnotation); asked {
		plan.Hostname = name
	}
	taken := d.volumeNames()
	for _, v := range plan.Volumes { // the apps' own, too
		taken = append(taken, v.Name)
	}
	name, err := types.NewACName(freeName("launcher-hosts", func(n string) bool { return slices.Contains(taken, n) }))
	if err != nil {
		return err
	}
	used := false
	for i, app := range m.Apps() {
		hasPlace, err := p.hasHostsPlace(m.AppImageOrder[app.Name])
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
		switch covered := coversHosts(app) || !hasPlace; {
		case covered && len(plan.AddedHosts) > 0:
			return fmt.Errorf("app %q: add hosts: its image or a volume has something else than a file of its own at %s",
				app.Name, hostsTarget)
		case covered:
			continue
		}
		d.pod.Apps[i].Mounts = append(d.pod.Apps[i].Mounts, schema.Mount{Volume: *name, Path: hostsTarget})
		used = true
	}
	if !used {
		return nil
	}
	readOnly := true
	d.pod.Volumes = append(d.pod.Volumes, types.Volume{
		Name: *name, Kind: "host", Source: path.Join(names.VolumesDir, name.String()), ReadOnly: &readOnly,
	})
	plan.Volumes = append(plan.Volumes, pods.Volume{Name: name.String(), ReadOnly: true, Hosts: true})
	if d.pod.JSON, err = d.encode(); err != nil {
		return err
	}
	var text bytes.Buffer
	err = m.Write(&text)
	plan.Manifest = text.Bytes()
	return err
}

// hasHostsPlace reports whether a file can be mounted at hostsTarget in the root of these images, the top one first: a
// link may lead into a volume of the app's, and a folder takes no file.
func (p *Planner) hasHostsPlace(ids []string) (bool, error) {
	var layers []*images.Image
	for _, id := range ids {
		image, err := p.Images.Get(id)
		if err != nil {
			return false, err
		}
		layers = append(layers, image)
	}
	root := images.NewMerged(layers)
	defer root.Close()
	folder, err := root.Lstat(path.Dir(hostsTarget))
	if err == nil && !folder.IsDir() {
		return false, nil
	}
	file, err := root.Lstat(hostsTarget)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && file.Mode().IsRegular(), err
}

// coversHosts reports whether a volume of the app is at the path of the hosts file, above or below.
func coversHosts(app manifest.App) bool {
	covers := func(target string) bool {
		target = path.Clean("/" + target)
		return target == hostsTarget || spec.Inside(hostsTarget, target) || spec.Inside(target, hostsTarget)
	}
	return slices.ContainsFunc(app.Runtime.Mounts, func(m schema.Mount) bool { return covers(m.Path) }) ||
		slices.ContainsFunc(app.App.MountPoints, func(p types.MountPoint) bool { return covers(p.Path) })
}

// withoutHosts removes from a pod manifest what addHosts has added.
func withoutHosts(pod map[string]any, plan pods.Plan) {
	isHosts := func(name any) bool {
		return slices.ContainsFunc(plan.Volumes, func(v pods.Volume) bool { return v.Hosts && v.Name == name })
	}
	drop := func(object map[string]any, list, key string) {
		rest := slices.DeleteFunc(listIn(object, list), func(element any) bool {
			item, _ := element.(map[string]any)
			return isHosts(item[key])
		})
		if delete(object, list); len(rest) > 0 {
			object[list] = rest
		}
	}
	drop(pod, "volumes", "name")
	for _, element := range listIn(pod, "apps") {
		if app, ok := element.(map[string]any); ok {
			drop(app, "mounts", "volume")
		}
	}
}
