"""Whether every pod in a file of manifests is of the `restricted` pod security standard, has limits, and no token.

The standard's checks that the manifests could break, from its published list; a name of a field that does not exist
is the schema's to find.
"""

import sys

import yaml

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def main(path):
    with open(path, encoding="utf-8") as file:
        pods = [(obj["metadata"]["name"], obj["spec"]["template"]["spec"]) for obj in yaml.safe_load_all(file) if "template" in obj.get("spec", {})]
    assert pods, "there is no pod to look at"
    faults = [f"{name}: {fault}" for name, pod in pods for fault in pod_faults(pod)]
    print("\n".join(faults) or f"restricted: {len(pods)} pod(s)")
    return 1 if faults else 0


def pod_faults(pod):
    security = pod.get("securityContext", {})
    if pod.get("automountServiceAccountToken") is not False:
        yield "the pod has a token of the cluster"
    if security.get("runAsNonRoot") is not True or security.get("runAsUser") == 0:
        yield "securityContext.runAsNonRoot"
    if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "securityContext.seccompProfile"
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield key
    for volume in pod.get("volumes", []):
        if not VOLUMES & volume.keys():
            yield f"volume {volume['name']}"
    for container in pod.get("initContainers", []) + pod["containers"]:
        for fault in container_faults(container):
            yield f"{container['name']}: {fault}"


def container_faults(container):
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if security.get("privileged"):
        yield "privileged"
    if security.get("readOnlyRootFilesystem") is not True:
        yield "readOnlyRootFilesystem"
    capabilities = security.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
        yield "capabilities"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield "hostPort"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield "resources.limits.memory"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
