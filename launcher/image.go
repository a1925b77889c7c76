package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"

	"golang.org/x/term"
)

// runImage is `image import FILE…`, `image list` and `image rm IMAGE…`.
func runImage(ctx context.Context, c *cli, args []string) error {
	if len(args) == 0 {
		return usageError{"image: want import, list or rm"}
	}
	rest, err := c.parse("image "+args[0], args[1:], nil)
	if err != nil {
		return err
	}
	store, err := images.Open(c.config.ImagesDirectory)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "import" && len(rest) > 0:
		return c.importImages(ctx, store, rest)
	case args[0] == "list" && len(rest) == 0:
		return c.listImages(store)
	case args[0] == "rm" && len(rest) > 0:
		return c.removeImages(store, rest)
	}
	return usageError{"image: want import FILE…, list, or rm IMAGE…"}
}

// importImages prints the ID of each image that it imports.
func (c *cli) importImages(ctx context.Context, store *images.Store, files []string) error {
	ring, err := c.config.keyring()
	if err != nil {
		return err
	}
	for _, file := range files {
		image, err := store.Import(ctx, file, ring, c.progress(filepath.Base(file)))
		if err != nil {
			return err
		}
		if c.json {
			err = c.printJSON(describeImage(image))
		} else {
			_, err = fmt.Fprintln(c.stdout, image.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// progress reports on a terminal how much of a file is read; elsewhere it is nil.
func (c *cli) progress(what string) func(done, size int64) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	shown := int64(-1)
	return func(done, size int64) {
		percent := 100 * done / max(size, 1)
		if percent == shown {
			return
		}
		shown = percent
		fmt.Fprintf(c.stderr, "\r%s: %d %%", what, percent)
		if done >= size {
			fmt.Fprint(c.stderr, "\r\x1b[K")
		}
	}
}

// imageInfo is what `image list --json` shows of an image.
type imageInfo struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Labels   map[string]string `json:"labels"`
	Size     int64             `json:"size"` // bytes
	Imported time.Time         `json:"imported"`
	Signed   bool              `json:"signed"`
	SignedBy string            `json:"signedBy,omitempty"` // fingerprint, where it is known
	Rootfs   string            `json:"rootfs"`
}

func describeImage(image *images.Image) imageInfo {
	info := imageInfo{
		ID:       image.ID,
		Name:     image.Manifest.Name,
		Labels:   make(map[string]string),
		Size:     image.Record.Size,
		Imported: image.Record.Imported,
		Signed:   image.Record.Seal != "",
		SignedBy: image.Record.SignedBy,
		Rootfs:   image.Rootfs(),
	}
	for _, l := range image.Manifest.Labels {
		info.Labels[l.Name] = l.Value
	}
	return info
}

func (c *cli) listImages(store *images.Store) error {
	all, err := store.List()
	if err != nil {
		return err
	}
	if c.json {
		infos := []any{}
		for _, image := range all {
			if image.Damage != nil {
				infos = append(infos, damagedImage{image.ID, oneLine(image.Damage)})
				continue
			}
			infos = append(infos, describeImage(image))
		}
		return c.printJSON(infos)
	}
	out := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "ID\tNAME\tVERSION\tARCH\tSIZE\tIMPORTED\tSIGNED")
	for _, image := range all {
		if image.Damage != nil {
			fmt.Fprintf(out, "%s\t-\t-\t-\t-\t-\tdamaged: %s\n", shortID(image.ID), shown(oneLine(image.Damage)))
			continue
		}
		info := describeImage(image)
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%.1f MB\t%s\t%s\n", shortID(info.ID), shown(info.Name),
			dash(shown(info.Labels["version"])), dash(shown(info.Labels["arch"])), float64(info.Size)/1e6,
			info.Imported.Local().Format(time.DateTime), signedText(info))
	}
	return out.Flush()
}

// damagedImage is what `image list --json` shows of a damaged image.
type damagedImage struct {
	ID      string `json:"id"`
	Damaged string `json:"damaged"` // why
}

func shortID(id string) string { return id[:len("sha512-")+12] }

func signedText(info imageInfo) string {
	switch {
	case !info.Signed:
		return "no"
	case info.SignedBy == "":
		return "by an unknown key"
	}
	return "by " + info.SignedBy
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (c *cli) removeImages(store *images.Store, refs []string) error {
	var errs []error
	for _, ref := range refs {
		id, err := store.FindID(ref)
		if err == nil {
			err = store.Remove(id, func() error { return c.checkUnused(ref, id) })
		}
		errs = append(errs, err)
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}

// checkUnused makes sure that no pod uses an image.
func (c *cli) checkUnused(ref, id string) error {
	inUse, err := c.imagesInUse()
	if err != nil {
		return err
	}
	if pod, used := inUse[id]; used {
		return fmt.Errorf("image %s: pod %q uses it", ref, pod)
	}
	return nil
}

// imagesInUse maps the images of live pods to a pod's name.
func (c *cli) imagesInUse() (map[string]string, error) {
	store, err := c.pods()
	if err != nil {
		return nil, err
	}
	all, err := store.List()
	if err != nil {
		return nil, err
	}
	inUse := make(map[string]string)
	for _, pod := range all {
		if pod.State.Phase == pods.Exited {
			continue
		}
		inUse[pod.Plan.StagerImage] = pod.Plan.Name
		for _, layer := range pod.Plan.Layers {
			inUse[layer.ID] = pod.Plan.Name
		}
	}
	return inUse, nil
}

func (c *cli) pods() (*pods.Store, error) {
	return pods.Open(c.config.PodsDirectory, c.config.ParentCgroupName)
}

func (c *cli) printJSON(v any) error {
	out := json.NewEncoder(c.stdout)
	out.SetEscapeHTML(false)
	return out.Encode(v)
}
