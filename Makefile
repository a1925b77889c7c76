# `make demo` imports, starts and stops a pod; `make test` runs the tests, in some minutes.
# Run both as root. On Debian they install missing packages. `make help` lists all targets.

# VERSION is the version that the programs, the image's label and the stager's log have.
ifndef VERSION
VERSION := $(shell tools/version.sh)
endif
# ARCH is the architecture that the programs are built for, amd64 or arm64, by Go's names: this machine's, unless it is given.
ifndef ARCH
ARCH := $(shell go env GOHOSTARCH)
endif
# KEY is an OpenPGP private key file that signs the images of stager and network plugins; GPG is the ID of a key in your gpg
# agent. Without one a throwaway key signs all images, and FILE.aci.pub is its public half.
KEY     ?=
GPG     ?=
# ADD are folders whose files are added to the stager image.
ADD     ?=

GO      := go
TAGS    := seccomp netgo osusergo
GOBUILD := $(GO) build
LDFLAGS := -s -w -X $(shell $(GO) list -m)/internal/version.version=$(VERSION)
# Debian's cross compiler, and the libraries of the package libseccomp-dev:arm64.
CROSS   := $(if $(filter arm64,$(ARCH)),CC=aarch64-linux-gnu-gcc PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
STATIC  := $(CROSS) GOARCH=$(ARCH) CGO_ENABLED=1 $(GOBUILD) -tags '$(TAGS)' -ldflags "$(LDFLAGS) -linkmode external -extldflags '-static'"
HOST    := GOARCH=$(ARCH) CGO_ENABLED=0 $(GOBUILD) -tags '$(TAGS)' -ldflags "$(LDFLAGS)"

BIN    := bin
OUT    := build/out
DIST   := dist
NAME   := $(shell $(GO) run ./names/print)
ACI    := $(OUT)/$(NAME)-$(VERSION)-linux-$(ARCH).aci
LINT   := bin/tools/golangci-lint
VULN   := bin/tools/govulncheck
IMAGES := $(OUT)/images

# PACK is the program aci for this machine, which makes the images.
NATIVE := $(filter $(ARCH),$(shell $(GO) env GOHOSTARCH))
PACK   := $(if $(NATIVE),$(BIN)/aci,bin/tools/aci)
# PLUGINS are the network plugins with an image: all, or for another architecture those without programs of this machine.
PLUGINS := $(if $(NATIVE),,lo remote sample)

# ENDTOEND are the packages whose tests need what make aci and make images have built.
ENDTOEND := ./tests/... $(wildcard ./launcher/tests) ./cri/...
# RACEFREE are the packages that are tested without the race detector, also with RACE=-race. Its runtime cannot
# follow container and unionfs into other namespaces. The tests of ENDTOEND and of the launcher's
# commands run processes, in which it finds nothing and takes minutes.
RACEFREE := ./container/... ./supervisor/supervisortest ./unionfs/... $(wildcard ./launcher)

# LONG are the end-to-end tests that make test leaves to make test-all: they make forks, packages or examples, repeat
# what others do once, or wait for limits.
LONG := \
	TestACopyOfTheTemplateIsAProduct \
	TestAnEarlierForkIsUpdated \
	TestAnEarlierProductTakesTodaysVersion \
	TestAStoppedInitHoldsUpNobody \
	TestAPluginThatHangsIsEndedAfterItsTime \
	TestDocumentsAreTrue \
	TestExamplesRunTheSpecificationsPod \
	TestFailuresOfARemoteDriverRollBack \
	TestForkDocumentIsTrue \
	TestImagesOfNetworkPluginsAreOfTheArchitectureThatIsAskedFor \
	TestManyPodsAreConnectedAtOnce \
	TestManyPodsOfARemoteDriverAreConnectedAtOnce \
	TestNetworkPluginsAreSignedByTheKeyInTheAgent \
	TestNothingIsLeftAfterKillsAtRandom \
	TestPackagedDocumentsAreWhole \
	TestPackagesAreInstalledUpgradedRemovedAndPurged \
	TestPackagesAreReproducible \
	TestPluginsAreCalledAsCNIToolCallsThem \
	TestRealImagesOfARegistryKeepTheirData \
	TestRemoteDriverOfGlobalScopeOverTLS \
	TestRenameIsOneEdit \
	TestTheFirstPodRunsOnAFreshDebian \
	TestTheModuleIsInstalledAndImported \
	TestTheReleaseIsSummed
space := $(subst ,, )

# PATIENCE is how long the tests of one package may take, on a busy machine too.
PATIENCE := 20m
# make test-unit vets all packages.
GOTEST   := $(GO) test -vet=off -tags '$(TAGS)' -timeout $(PATIENCE)

# Builds and tests have the same flags, so that each package is compiled once; without paths, also for copies of this folder.
export GOFLAGS += -trimpath -buildvcs=false

.PHONY: all help build man completions aci images test test-all test-unit test-short test-race test-e2e test-cri test-kubernetes critest test-examples test-ace test-networks test-follow test-vm test-vm-ci test-arm64 test-aufs test-pacemaker test-service test-upgrade hostile chaos kills inject orphans clauses lint vuln bench demo fuzz clean deps-build deps-netplugins deps-test deps-lint deps-vm deps-arm64 deps-examples deps-bench deps-release release reproducible root FORCE

all: build

# The table is CONTRIBUTING.md's.
help:
	@sed -n 's/`//g; s/^| \(make [^|]*[^ |]\) *| \(.*\) |$$/\1\n\t\2/p' CONTRIBUTING.md

# A fork of the stager alone has no launcher and no server for Kubernetes.
build: $(BIN)/stager $(BIN)/aci $(if $(wildcard launcher),$(BIN)/launcher) $(if $(wildcard cri),$(BIN)/kurma-cri)

# Go decides what is out of date.
$(BIN)/stager: deps-build FORCE
	$(STATIC) -o $@ ./stager
$(BIN)/launcher: FORCE
	$(HOST) -o $@ ./launcher
$(BIN)/kurma-cri: FORCE
	$(HOST) -o $@ ./cri/kurma-cri
$(BIN)/aci: FORCE
	$(HOST) -o $@ ./build/aci
bin/tools/aci: FORCE
	GOARCH= CGO_ENABLED=0 $(GOBUILD) -o $@ ./build/aci

man: $(BIN)/launcher
	rm -rf $(OUT)/man && $(BIN)/launcher man $(OUT)/man
completions: $(BIN)/launcher
	mkdir -p $(OUT)/completions
	for shell in bash zsh fish; do $(BIN)/launcher completion $$shell >$(OUT)/completions/launcher.$$shell || exit 1; done

# Earlier versions' images go: tests take the one image that there is.
aci: build $(PACK) deps-netplugins
	mkdir -p $(OUT)
	rm -f $(OUT)/$(NAME)-*-linux-$(ARCH).aci*
	$(PACK) --manifest aci-manifest.json --stager $(BIN)/stager --arch '$(ARCH)' $(foreach dir,$(ADD),--add '$(dir)') --version '$(VERSION)' --unsigned -o '$(ACI)'
	ACI='$(PACK)' ARCH='$(ARCH)' netplugins/build.sh $(OUT) '$(VERSION)' $(PLUGINS)
	KEY='$(KEY)' GPG='$(GPG)' tools/sign.sh '$(PACK)' '$(ACI)' $(OUT)/*-netplugin.aci

release: root deps-release
	KEY='$(KEY)' GPG='$(GPG)' VERSION='$(VERSION)' tools/release/release.sh '$(DIST)'

reproducible: root deps-release
	VERSION='$(VERSION)' tools/release/reproducible.sh '$(OUT)/reproducible'

# NAMES are the images of the tests to make, all if there are none.
images: build
	tests/images/build.sh $(IMAGES) $(NAMES)

examples/vm examples/crun: deps-examples build FORCE
	$@/build.sh $(OUT)/examples

test: root deps-build deps-test aci images test-unit test-e2e

test-all: RACE := -race
test-all: LONG :=
test-all: root deps-build deps-test aci images test-unit test-short test-e2e test-cri test-examples

test-unit: root deps-build deps-test
	mkdir -p $(OUT)
	$(GO) vet -tags '$(TAGS)' ./...
	$(GO) list -tags '$(TAGS)' ./... >$(OUT)/packages
	$(GO) list -tags '$(TAGS)' $(ENDTOEND) $(if $(RACE),$(RACEFREE)) >$(OUT)/others
	GORACE=atexit_sleep_ms=0 $(GOTEST) $(RACE) -parallel 4 -skip '^Example$$' $$(grep -v -x -F -f $(OUT)/others $(OUT)/packages)
	$(if $(RACE),$(GOTEST) $(RACEFREE))
	$(GO) vet -C netplugins -tags '$(TAGS)' ./...
	$(GO) test -C netplugins -vet=off -tags '$(TAGS)' ./...
	$(GO) test -C tools/release -tags '$(TAGS)' ./...

# What passes for a user without root and before any make, after test-unit, which has compiled it.
test-short: root deps-build deps-test
	tests/short.sh -vet=off -tags '$(TAGS)' -timeout $(PATIENCE) ./...

# The packages whose goroutines share most.
test-race: root deps-build deps-test
	GORACE=atexit_sleep_ms=0 $(GOTEST) -race ./supervisor ./supervisor/output ./callins ./crilog ./launcher/sources

# The packages run one after the other, because tests/fork builds, and the tests of the others have time limits.
RUN ?= .
# BUILT are the variables that tell the end-to-end tests what to test.
BUILT = STAGER_BIN='$(CURDIR)/bin' STAGER_ACI="$$(ls $(CURDIR)/$(OUT)/$(NAME)-*-linux-$(ARCH).aci)" STAGER_IMAGES='$(CURDIR)/$(IMAGES)'
SKIP = $(if $(and $(LONG),$(filter .,$(RUN))),-skip '^($(subst $(space),|,$(strip $(LONG))))$$')
test-e2e: root
	$(BUILT) $(GOTEST) -count=1 -p 1 -run '$(RUN)' $(SKIP) ./tests/...
	$(BUILT) $(GOTEST) -count=1 -run '$(RUN)' $(SKIP) ./launcher/tests
	$(BUILT) $(GOTEST) -count=1 -run '$(if $(filter .,$(RUN)),^Example$$,$(RUN))' ./launcher/daemon

test-examples: root deps-build deps-test build images examples/vm examples/crun
	STAGER_BIN='$(CURDIR)/bin' STAGER_EXAMPLES='$(CURDIR)/$(OUT)/examples' STAGER_IMAGES='$(CURDIR)/$(IMAGES)' \
		$(GO) test -C examples/vm -tags '$(TAGS)' -count=1 -timeout $(PATIENCE) ./...
	STAGER_BIN='$(CURDIR)/bin' STAGER_EXAMPLES='$(CURDIR)/$(OUT)/examples' STAGER_IMAGES='$(CURDIR)/$(IMAGES)' \
		CGO_ENABLED=0 $(GO) test -C examples/crun -count=1 -timeout $(PATIENCE) ./...
	$(GO) test -C examples/fuse -tags '$(TAGS)' -count=1 -timeout $(PATIENCE) ./...

test-cri: root deps-build deps-test aci images
	$(BUILT) $(GOTEST) -count=1 -run '$(RUN)' ./cri/...

# Kubernetes' own programs, all in one, which are built once for each version.
KUBERNETES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kurma/kubernetes-$(shell cat tests/kubernetes/go.sum tests/kubernetes/allinone/*.go | sha256sum | cut -c 1-16)
# The client of kurma-cri that docs/one-machine.md calls.
CRICTL_VERSION := v1.37.0
CRICTL ?= $(dir $(KUBERNETES))crictl-$(CRICTL_VERSION)
# The validation of the CRI.
CRITEST ?= $(dir $(KUBERNETES))critest-$(CRICTL_VERSION)
test-kubernetes: root deps-build deps-test aci images $(KUBERNETES) $(CRICTL) $(CRITEST)
	$(GO) vet -C tests/kubernetes .
	KUBERNETES='$(abspath $(KUBERNETES))' CRICTL='$(abspath $(CRICTL))' CRITEST='$(abspath $(CRITEST))' $(BUILT) $(GO) test -C tests/kubernetes -count=1 -v -timeout 60m -run '$(RUN)' .

$(KUBERNETES):
	mkdir -p $(@D)
	CGO_ENABLED=0 nice $(GO) build -C tests/kubernetes -trimpath -o '$(abspath $@).new' \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$(sed -n 's,.*k8s.io/kubernetes v,v,p' tests/kubernetes/go.mod)" ./allinone
	mv '$@.new' '$@'

critest: root deps-build deps-test aci images $(CRITEST)
	CRITEST='$(abspath $(CRITEST))' $(BUILT) $(GO) test -C tests/kubernetes -count=1 -v -timeout 60m -run '^TestCRITest$$' .

$(CRITEST):
	mkdir -p $(@D)
	cd "$$($(GO) mod download -json sigs.k8s.io/cri-tools@$(CRICTL_VERSION) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')" && \
		CGO_ENABLED=0 nice $(GO) test -c -ldflags '-s -w' -o '$(abspath $@).new' ./cmd/critest
	mv '$@.new' '$@'

$(CRICTL):
	CGO_ENABLED=0 GOBIN='$(abspath $@).new' nice $(GO) install -ldflags '-s -w' sigs.k8s.io/cri-tools/cmd/crictl@$(CRICTL_VERSION)
	mv '$@.new/crictl' '$@'
	rmdir '$@.new'

PODS ?= 1000
test-follow: root deps-build deps-test aci images
	PODS=$(PODS) $(BUILT) \
		$(GO) test -tags '$(TAGS)' -count=1 -timeout 60m -run '^TestFollowersOfShortPodsGetEveryByte$$' ./launcher/tests

MINUTES ?= 10
hostile: root deps-build deps-test aci images
	HOSTILE_FOR='$(MINUTES)m' $(BUILT) \
		$(GO) test -tags '$(TAGS)' -count=1 -v -timeout $$((2 * $(MINUTES) + 10))m -run '^TestHostileApps$$' ./tests
	$(BUILT) $(GOTEST) -count=1 -v -run '^TestHostile' ./cri/tests

# A run prints its SEED.
N    ?= 1000
SEED ?=
chaos: root deps-build deps-test aci images
	CHAOS='$(N)' CHAOSSEED='$(SEED)' $(BUILT) \
		$(GO) test -tags '$(TAGS)' -count=1 -timeout 6h -v -run '^TestNothingIsLeftAfterKillsAtRandom$$' ./tests

kills: root deps-build deps-test aci images
	KILLS='$(N)' KILLSSEED='$(SEED)' $(BUILT) \
		$(GO) test -tags '$(TAGS)' -count=1 -timeout 6h -v -run '^TestNoProcessOutlivesTheSupervisorOrInit$$' ./tests

# A run goes on where an earlier one with the same RESULTS has ended. POINT is OPERATION/ROLE/CALL/INDEX/FAULT, each a regular
# expression, the last may be missing.
POINT   ?= .*
EVERY   ?= 1
FOR     ?= 12h
RESULTS ?= $(OUT)/inject
inject: root deps-build deps-test aci images
	INJECT_POINT='$(POINT)' INJECT_EVERY='$(EVERY)' INJECT_FOR='$(FOR)' INJECT_RESULTS='$(abspath $(RESULTS))' $(BUILT) \
		$(GO) test -tags '$(TAGS)' -count=1 -timeout 24h -v -run '^TestAFaultLeavesNothing$$' ./tests/inject

ORPHANS ?= 1000000
RUNS    ?= 100000
orphans: root deps-build deps-test aci images
	ORPHANS='$(ORPHANS)' RUNS='$(RUNS)' $(BUILT) \
		$(GO) test -tags '$(TAGS)' -count=1 -timeout 24h -v -run '^Test(OrphansCostInit|CommandsCostTheSupervisor)Nothing$$' ./tests

ROUNDS ?= 20
KILLS  ?= 200
test-networks: root deps-build deps-test aci images
	NETWORK_ROUNDS='$(ROUNDS)' NETWORK_KILLS='$(KILLS)' \
	$(BUILT) $(GO) test -tags '$(TAGS)' -count=1 -v -timeout 120m -run 'Network|Bridge|ManyPods|NothingIsLeft|DHCP|Bandwidth|APluginThat|APluginMay|APluginRuns|PodsPluginStays|SamplePlugins|CNITool|RemoteDriver|ADriverKeeps|DriversOfTheMachine|OfCNI|Publishe[ds]|ThePluginThat|ThePodThatFollows|AStagerStartsWhen|EarlierBoot|LostItsMainProcess|UnderAKurmaDaemon|OfARegistry' ./launcher/tests

ACETIMES ?= 20
test-ace: root deps-build deps-test aci images
	$(BUILT) $(GOTEST) -count=$(ACETIMES) -v -run '^TestAcceptanceProgramPasses$$' ./tests

test-vm: root deps-vm aci images
	tests/vm/run.sh $(OUT)
test-vm-ci: root deps-vm aci images
	tests/vm/run.sh $(OUT) cgroups container='^Test(Direct)?RuntimeConforms$$' unionfs \
		e2e='^Test(RunHasItsAppsSurroundings|SpecificationExampleRuns|StagerRunsOnOverlay)$$' \
		cri='^Test(Limits|StatsAndUpdates)'

test-arm64: root deps-arm64 build
	VMARCH=arm64 tests/vm/run.sh $(OUT)

test-service: root deps-vm deps-test deps-release aci images
	tests/vm/systemd.sh $(OUT)

test-pacemaker: root deps-build deps-test aci
	tests/images/build.sh $(IMAGES) busybox
	tests/pacemaker/run.sh $(OUT)

# FROM is the commit whose programs have started the pods.
test-upgrade: root deps-build deps-test aci
	@[ -n '$(FROM)' ] || { echo 'usage: make test-upgrade FROM=COMMIT' >&2; exit 1; }
	tests/images/build.sh $(IMAGES) busybox
	tests/upgrade.sh '$(CURDIR)/bin' '$(CURDIR)/$(ACI)' '$(CURDIR)/$(IMAGES)' '$(FROM)'

# APPEND is added to the kernel's command line.
test-aufs: root deps-vm aci images
	@[ -n '$(KERNEL)' ] || { echo 'usage: make test-aufs KERNEL=FILE' >&2; exit 1; }
	VMKERNEL='$(KERNEL)' VMAPPEND='$(APPEND)' VMFILESYSTEM=aufs tests/vm/run.sh $(OUT) unionfs container stager pods \
		e2e='^Test(LayersStayAsTheyAre|AppsChangeFilesOfTheirLayers|TooManyLayersAreRefused|StagerRunsOnOverlay|SpecificationExampleRuns|ThreeRealProgramsShareAVolume)$$' \
		cri='^Test(Limits|StatsAndUpdates|Metrics)'

clauses:
	$(GO) run -tags '$(TAGS)' ./tests/clauses >tests/CLAUSES.md.new && mv tests/CLAUSES.md.new tests/CLAUSES.md

lint: deps-build deps-lint $(LINT)
	tools/lint-c.sh
	$(LINT) run ./...
	for module in examples/* netplugins tools/release; do (cd $$module && $(CURDIR)/$(LINT) run -c $(CURDIR)/.golangci.yml ./...) || exit 1; done
	cd tests/kubernetes && $(CURDIR)/$(LINT) run -c $(CURDIR)/.golangci.yml . # ./... would build all of Kubernetes

vuln: deps-build $(VULN)
	$(VULN) -tags '$(TAGS)' ./...

bench: root deps-build deps-bench aci
	$(GO) run -tags '$(TAGS)' ./tests/bench -aci '$(ACI)' -plot docs/performance.svg >$(OUT)/performance.md
	mv $(OUT)/performance.md docs/performance.md

demo: root deps-build deps-test aci
	tests/images/build.sh $(IMAGES) nats
	tests/demo.sh '$(CURDIR)/bin' '$(CURDIR)/$(ACI)' '$(CURDIR)/$(IMAGES)'
	tests/demo-networks.sh '$(CURDIR)/bin' '$(CURDIR)/$(ACI)' '$(CURDIR)/$(IMAGES)'

# Go minimizes each input that it finds interesting for up to a minute if it may, and tries nothing else meanwhile.
FUZZTIME ?= 30s
fuzz: deps-build
	@for module in . examples/vm; do \
		for package in $$($(GO) list -C $$module -tags '$(TAGS)' ./...); do \
			for target in $$($(GO) test -C $$module -tags '$(TAGS)' -list '^Fuzz' $$package | grep '^Fuzz'); do \
				$(GO) test -C $$module -tags '$(TAGS)' -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 200x $$package || exit 1; \
			done; \
		done; \
	done

clean:
	rm -rf bin $(OUT) $(DIST)

# Tools are built from versions pinned in tools/go.mod, apart from the
# program's own modules.
$(LINT): tools/go.mod
	$(GO) build -C tools -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(VULN): tools/go.mod
	$(GO) build -C tools -o ../$@ golang.org/x/vuln/cmd/govulncheck

deps-build deps-netplugins deps-release: deps-%:
	@tools/deps.sh $*
deps-test deps-lint deps-examples deps-bench: deps-%:
	@tools/deps.sh build $*
deps-vm deps-arm64: deps-%:
	@tools/deps.sh build test $*

root:
	@[ "$$(id -u)" = 0 ] || { echo 'namespaces, mounts and cgroups need root: sudo make $(MAKECMDGOALS)' >&2; exit 1; }

FORCE:
