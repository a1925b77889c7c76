package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"
)

// journalDir holds the sockets of journald, if the host has one.
const journalDir = "/run/systemd/journal"

// createPod plans a pod and puts it into the store. Its images cannot be removed
// meanwhile; afterwards the pod's plan says that they are in use.
func (c *cli) createPod(ctx context.Context, store *pods.Store, o runOptions) (*pods.Pod, error) {
	images, err := c.images()
	if err != nil {
		return nil, err
	}
	ring, err := c.config.keyring()
	if err != nil {
		return nil, err
	}
	release, err := images.Pin()
	if err != nil {
		return nil, err
	}
	defer release()
	for {
		names, err := store.LiveNames()
		if err != nil {
			return nil, err
		}
		plan, warnings, err := c.planPod(images.Catalog(ring, c.config.ImagePins), o, names)
		if err != nil {
			c.warn(warnings...) // a misspelt key may be the cause
			return nil, err
		}
		pod, err := store.Create(ctx, plan)
		if o.name == "" && errors.Is(err, pods.ErrNameTaken) {
			continue // by a pod that was made since we looked
		}
		if errors.Is(err, pods.ErrNameTaken) {
			err = fmt.Errorf("%w; choose another with --name", err)
		}
		c.warn(warnings...)
		return pod, err
	}
}

// planPod plans a pod and returns the plan's warnings, also with an error. A name that is made for the pod is
// not among names.
func (c *cli) planPod(catalog *images.Catalog, o runOptions, names map[string]string) (pods.Plan, []string, error) {
	stager, err := catalog.Stager(c.config.DefaultStagerImage)
	switch {
	case errors.Is(err, images.ErrNotFound) && filepath.IsAbs(c.config.DefaultStagerImage):
		err = fmt.Errorf("find stager image: no image is called %q; defaultStagerImage names an image in that file as file://%[1]s", printable(c.config.DefaultStagerImage))
	case errors.Is(err, images.ErrNotFound):
		err = errors.Join(err, errNoStager)
	}
	if err != nil {
		return pods.Plan{}, nil, err
	}
	planner := podplan.Planner{
		Images:       catalog,
		Stager:       stager,
		StagerConfig: c.config.DefaultStagerConfig,
		CheckSource:  pods.CheckSource,
		Journal:      hostJournal(),
		Networks:     c.networks,
	}
	taken := func(name string) bool { return names[name] != "" }
	pod, warnings, err := plan(planner, o, taken)
	return pod, append(catalog.Warnings(), warnings...), err
}

// errNoStager says that the store does not have the stager's image.
var errNoStager = errors.New("pods need a stager image")

// plan plans the pod of a pod manifest or of an image.
func plan(p podplan.Planner, o runOptions, taken func(string) bool) (pods.Plan, []string, error) {
	options := podplan.Options{
		UUID: o.uuid, Name: o.name, Taken: taken, Volumes: o.volumes.named, Mounts: o.volumes.mounts, App: o.app,
		HostNetwork: o.net.host, NoNetwork: o.net.none, Networks: o.net.requests,
		Remove: o.remove && !o.interactive(), ExitPolicy: o.exitPolicy, Restart: o.restart,
	}
	if !o.detach {
		options.DefaultExit = "all"
	}
	isManifest, err := isPodManifest(o.source)
	if err != nil {
		return pods.Plan{}, nil, err
	}
	if !isManifest {
		pod, warnings, err := p.FromImage(o.source, o.args, options)
		return pod, warnings, hintAtFolder(p.Images, o.source, err)
	}
	if len(o.args) > 0 {
		return pods.Plan{}, nil, usageError{"run: arguments after -- are for an image's app, not for a pod manifest"}
	}
	if o.appFlag != "" {
		return pods.Plan{}, nil, usageError{"run: --" + o.appFlag + " is for an image's app; write it into the pod manifest"}
	}
	document, err := os.ReadFile(o.source)
	if err != nil {
		return pods.Plan{}, nil, fmt.Errorf("read pod manifest: %w", err)
	}
	return p.FromManifest(o.source, document, options)
}

// isPodManifest reports whether what `run` is given is the file of a pod manifest: by its suffix, or
// because there is such a file. A file that cannot be a pod manifest is an error: it is probably an image's.
func isPodManifest(source string) (bool, error) {
	if strings.HasSuffix(source, ".json") {
		return true, nil
	}
	info, err := os.Stat(source)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	file, err := os.Open(source)
	if err != nil {
		return false, fmt.Errorf("read pod manifest: %w", err)
	}
	defer file.Close()
	head, err := io.ReadAll(io.LimitReader(file, 1<<12))
	if err != nil {
		return false, fmt.Errorf("read pod manifest: %w", err)
	}
	if head = bytes.TrimSpace(head); len(head) > 0 && head[0] != '{' {
		return false, fmt.Errorf("%s is not a pod manifest, which is a JSON object; an image in that file is file://%s", printable(source), printable(source))
	}
	return true, nil
}

// hintAtFolder makes an error of one that says that there is no image called as a folder: the folder's image may be meant.
func hintAtFolder(catalog podplan.Images, ref string, err error) error {
	if !errors.Is(err, images.ErrNotFound) {
		return err
	}
	info, statErr := os.Stat(ref)
	if statErr != nil || !info.IsDir() {
		return err
	}
	if _, findErr := catalog.Find(ref); !errors.Is(findErr, images.ErrNotFound) {
		return err // one of the image's layers is missing
	}
	return fmt.Errorf("no such image: %q; an image in that folder is file://%s", ref, printable(ref))
}

// hostJournal is the host's folder of journald's sockets, "" if it has none.
func hostJournal() string {
	if _, err := os.Stat(filepath.Join(journalDir, "socket")); err != nil {
		return ""
	}
	return journalDir
}
