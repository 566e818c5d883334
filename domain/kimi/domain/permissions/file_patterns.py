"""Patterns of files: which hold secrets, and which become a command or an instruction (tools spec 2.3, 2.4).

A pattern without a slash names a file; one with slashes is a run of components anywhere in the path, with everything
below it; one that ends in a slash is a directory with everything below it; one that begins with a slash starts at the
root. Components are shell globs. Paths and patterns are compared without case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kimi.domain.permissions.path_rules import glob_to_regex

_ENVIRONMENT = (".env", ".env.*", ".envrc", ".envrc.*", ".flaskenv")
_PRIVATE_KEYS = (
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_*_sk", ".ssh/*", "ssh_host_*_key"),
    *("*.pem", "*.p8", "*.p12", "*.pfx", "*.pkcs12", "*.key", "*.keystore", "*.jks", "*.bks", "*.ppk", "*.agekey"),
    *("*.keytab", "krb5cc_*", "*.ovpn", ".gnupg/", ".pki/nssdb/", ".step/secrets/", ".tsh/", ".config/sops/"),
)
_PASSWORDS = (
    *(".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".htpasswd", ".smbcredentials", "*.kdb", "*.kdbx"),
    *(".password-store/", ".local/share/keyrings/", ".local/share/kwalletd/", "*.keychain", "*.keychain-db"),
    *("Library/Keychains/", "Microsoft/Credentials/", "Microsoft/Protect/", "Microsoft/Vault/"),
    *(".config/op/", ".config/Bitwarden CLI/", ".lastpass/", ".local/share/lpass/"),
    *(".msmtprc", ".config/msmtp/config", ".fetchmailrc", ".mbsyncrc", ".offlineimaprc", ".Xauthority"),
    *("sitemanager.xml", "recentservers.xml", "WinSCP.ini"),
)
_GENERIC = (
    *("credentials", ".credentials", "credentials.json", "credentials.toml", "credentials.xml", "credentials.db"),
    *("credentials.yml", "credentials.yaml", "secrets.yml", "secrets.yaml", "secrets.json", "secrets.toml"),
    *("secrets.env", "secrets.ini", "secrets.properties", "secret.yml", "secret.yaml", "secret.json"),
    *("*.secret", "*.secrets", "client_secret*.json", "*service-account*.json", "*service_account*.json"),
    *("*firebase-adminsdk*.json", ".vault_pass*", ".vault-pass*", "vault_pass.txt"),
)
_VERSION_CONTROL = (
    *(".git-credentials", ".config/gh/hosts.yml", "GitHub CLI/hosts.yml", ".config/glab-cli/config.yml"),
    *(".config/hub", ".config/tea/config.yml"),
)
_CLOUD = (
    *(".aws/credentials", ".aws/sso/cache/", ".aws/cli/cache/", ".s3cfg", ".boto", ".gcp/credentials"),
    *("gcloud/*credentials*.json", "gcloud/credentials.db", "gcloud/access_tokens.db", "gcloud/legacy_credentials/"),
    *("application_default_credentials.json", ".azure/accessTokens.json", ".azure/msal_token_cache.*"),
    *(".azure/service_principal_entries.*", ".oci/config", ".aliyun/config.json", ".tccli/*.credential"),
    *(".bluemix/config.json", "doctl/config.yaml", "hcloud/cli.toml", "scw/config.yaml", ".config/linode-cli"),
    *(".vultr-cli.yaml", ".fly/config.yml", "netlify/config.json", ".netlify/config.json", ".vercel/auth.json"),
    *("com.vercel.cli/auth.json", ".wrangler/config/default.toml", ".cloudflared/*.json", ".railway/config.json"),
    *(".supabase/access-token", "configstore/firebase-tools.json", "rclone/rclone.conf", ".rclone.conf"),
    *(".pulumi/credentials.json", ".databrickscfg", ".snowsql/config", ".snowflake/connections.toml"),
    *(".kaggle/kaggle.json", "huggingface/token", ".huggingface/token", "huggingface/stored_tokens"),
    *(".ngrok2/ngrok.yml", "ngrok/ngrok.yml", ".sentryclirc", "stripe/config.toml", ".twilio-cli/config.json"),
    *(".circleci/cli.yml", ".travis/config.yml", ".expo/state.json", ".vault-token"),
    *("*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.json", ".terraformrc", "terraform.rc"),
    "credentials.tfrc.json",
)
_PACKAGES = (
    *(".npmrc", ".pypirc", ".pip/pip.conf", ".config/pip/pip.conf", "pypoetry/auth.toml", "uv/credentials/"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".bundle/config"),
    *(".composer/auth.json", "composer/auth.json", "NuGet/NuGet.Config", ".m2/settings.xml"),
    *(".m2/settings-security.xml", ".gradle/gradle.properties", ".hex/hex.config", "dart/pub-credentials.json"),
    ".pub-cache/credentials.json",
)
_CONTAINERS = (
    *(".kube/config", "kubeconfig", "*.kubeconfig", "kubeconfig.yaml", "kubeconfig.yml", "k3s.yaml", ".dockercfg"),
    *(".docker/config.json", ".docker/contexts/", "containers/auth.json", "helm/registry/config.json"),
    *(".rancher/cli2.json", ".talos/config", "argocd/config"),
)
_AGENTS = (
    *(".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".gemini/oauth_creds.json"),
    *(".gemini/google_accounts.json", ".qwen/oauth_creds.json", "github-copilot/hosts.json"),
    *("github-copilot/apps.json", ".copilot/config.json", "cursor/auth.json", "opencode/auth.json"),
    *(".continue/config.json", ".continue/config.yaml", ".aider.conf.yml", ".factory/auth.json"),
    *(".codeium/config.json", "io.datasette.llm/keys.json", ".kimi/config.toml", ".kimi/config.json"),
    *(".kimi/mcp.json", ".kimi/credentials/", ".kimi/mcp-oauth/", ".kimi-code/credentials/"),
)
_DATABASES = (".pgpass", "pgpass.conf", ".pg_service.conf", ".my.cnf", ".mylogin.cnf", ".odbc.ini")
_BROWSERS = (
    *("Login Data", "Login Data For Account", "Web Data", "cookies.sqlite", "cookies.sqlite-wal", "key3.db", "key4.db"),
    *("logins.json", "signons.sqlite", "cert9.db", ".mozilla/", ".thunderbird/", ".librewolf/"),
    *(".config/google-chrome/", ".config/chromium/", ".config/BraveSoftware/", ".config/microsoft-edge/"),
    *(".config/vivaldi/", ".config/opera/", "Library/Cookies/", "Google/Chrome/", "Firefox/Profiles/"),
    *("Chromium/User Data/", "Microsoft/Edge/", "BraveSoftware/Brave-Browser/"),
)
_WALLETS = (
    *("wallet.dat", ".bitcoin/wallets/", ".electrum/wallets/", ".ethereum/keystore/", "Ethereum/keystore/"),
    *(".config/solana/id.json", "Exodus/exodus.wallet/", ".monero/wallets/"),
)
_HISTORIES = (
    *(".*_history", ".history", ".zhistory", ".histfile", "fish_history", ".lesshst", ".viminfo", "main.shada"),
    "ConsoleHost_history.txt",
)
SENSITIVE_PATTERNS = (
    *_ENVIRONMENT, *_PRIVATE_KEYS, *_PASSWORDS, *_GENERIC, *_VERSION_CONTROL, *_CLOUD, *_PACKAGES, *_CONTAINERS,
    *_AGENTS, *_DATABASES, *_BROWSERS, *_WALLETS, *_HISTORIES,
)  # fmt: skip
"""Files that hold secrets, wherever they are (tools spec 2.3)."""

SENSITIVE_SYSTEM_PATTERNS = (
    *("/proc/self/", "/proc/thread-self/", "/proc/[0-9]*/", "/proc/kcore", "/proc/kmsg", "/proc/keys"),
    *("/dev/mem", "/dev/kmem", "/dev/port", "/dev/fd/", "/dev/kmsg", "/sys/firmware/efi/", "/sys/kernel/security/"),
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd", "/etc/master.passwd"),
    *("/etc/ssl/private/", "/etc/wireguard/", "/etc/NetworkManager/system-connections/", "/etc/ppp/*-secrets"),
    *("/etc/ipsec.secrets", "/etc/openvpn/", "/etc/kubernetes/", "/var/lib/kubelet/", "/run/secrets/"),
    *("/var/run/secrets/", "/run/credentials/", "/etc/credstore/", "/etc/credstore.encrypted/"),
    *("/etc/letsencrypt/archive/", "/etc/letsencrypt/live/", "/private/etc/master.passwd", "/private/var/db/dslocal/"),
)
"""Files of the system that hold secrets: what Linux shows of processes, with their variables and memory, among them."""

NOT_SENSITIVE_PATTERNS = (
    *(".env.example", ".env.sample", ".env.template", ".env.dist", ".envrc.example", "*.pub"),
    *("*.tfvars.example", "*.tfvars.sample", "*.example", "*.sample", "*.template"),
    *(".ssh/config", ".ssh/known_hosts", ".ssh/known_hosts.old", ".ssh/authorized_keys", ".ssh/allowed_signers"),
)
"""Names that `SENSITIVE_PATTERNS` match although the files hold no secrets; they match whole paths, nothing below."""

NOT_SENSITIVE_SYSTEM_PATTERNS = tuple(
    f"/proc/*/{name}"
    for name in ("status", "stat", "statm", "limits", "io", "cgroup", "mountinfo", "mounts", "comm", "oom_score")
)
"""What processes show of themselves without arguments, variables and memory."""

_REPOSITORY_COMMANDS = (
    *(".git/", "git~1/", ".hg/", ".jj/", ".githooks/", ".git-hooks/", ".husky/", ".lefthook/"),
    *(".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml", "lefthook.yaml", "lefthook.toml"),
    *(".lefthook.yml", ".lefthook.yaml", ".lefthook.toml", ".overcommit.yml", ".envrc", "mise.toml", ".mise.toml"),
    *(".mise/", ".github/workflows/", ".github/actions/", ".gitlab-ci.yml", ".circleci/config.yml"),
    *("sitecustomize.py", "usercustomize.py", "*.pth"),
)
"""What git, a shell that enters the directory, Python, or the next push runs."""

_EDITOR_COMMANDS = (
    *(".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json", ".vscode/extensions.json"),
    *(".vscode/mcp.json", "*.code-workspace", ".idea/", ".fleet/", ".zed/", ".devcontainer/", "devcontainer.json"),
    *(".exrc", ".nvimrc", ".nvim.lua", ".vimrc", ".gvimrc", ".vim/", ".dir-locals.el", ".emacs", ".emacs.d/"),
    *(".sublime-project", "*.sublime-project", ".config/nvim/", ".config/emacs/", ".config/Code/User/"),
)
"""What an editor runs when it opens the directory or starts."""

_INSTRUCTIONS = (
    *(".kimi/", ".agents/", "AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"),
    *(".cursorrules", ".cursor/rules/", ".cursor/mcp.json", ".cursor/hooks.json", ".windsurfrules", ".clinerules"),
    *(".github/copilot-instructions.md", ".github/instructions/", ".mcp.json"),
    *(".claude/skills/", ".claude/agents/", ".claude/commands/", ".claude/hooks/", ".claude/rules/"),
    *(".claude/plugins/", ".claude/settings.json", ".claude/settings.local.json", ".codex/skills/"),
    *(".codex/prompts/", ".codex/rules/", ".codex/config.toml", ".gemini/settings.json", ".gemini/commands/"),
    *(".gemini/extensions/",),
)
"""What this program and other agents take as instructions, skills, hooks or servers."""

_SHELL_START = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv"),
    *(".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".xprofile"),
    *(".xinitrc", ".xsession", ".xsessionrc", ".xserverrc", ".inputrc", ".pam_environment", ".hushlogin"),
    *(".config/fish/", ".config/zsh/", ".config/nushell/", ".oh-my-zsh/", ".config/powershell/", "profile.ps1"),
    *("Microsoft.PowerShell_profile.ps1", "Documents/PowerShell/", "Documents/WindowsPowerShell/"),
)
_USER_COMMANDS = (
    *(".ssh/", ".gitconfig", ".config/git/", ".hgrc", ".gnupg/", ".config/autostart/", ".config/systemd/"),
    *(".config/environment.d/", ".config/direnv/", ".local/bin/", ".local/share/applications/"),
    *(".local/share/systemd/", ".local/share/dbus-1/", ".cargo/bin/", ".config/plasma-workspace/"),
    *("Library/LaunchAgents/", "Library/LaunchDaemons/", "Start Menu/Programs/Startup/"),
    *(".tmux.conf", ".config/tmux/", ".screenrc", ".gdbinit", ".lldbinit", ".pythonrc", ".pythonrc.py", ".irbrc"),
    *(".pryrc", ".Rprofile", ".psqlrc", ".sqliterc", ".crontab"),
)
"""What a login, a shell, or a program that the user starts every day runs."""

_SYSTEM_COMMANDS = (
    *("/etc/", "/private/etc/", "/bin/", "/sbin/", "/boot/", "/lib/", "/lib64/", "/usr/bin/", "/usr/sbin/"),
    *("/usr/lib/", "/usr/libexec/", "/usr/local/bin/", "/usr/local/sbin/", "/opt/homebrew/bin/"),
    *("/var/spool/cron/", "/var/spool/at/", "/proc/", "/sys/", "/Library/", "/System/"),
    *("C:/Windows/", "C:/Program Files/", "C:/Program Files (x86)/", "C:/ProgramData/"),
)

PROTECTED_PATTERNS = (
    *_REPOSITORY_COMMANDS, *_EDITOR_COMMANDS, *_INSTRUCTIONS, *_SHELL_START, *_USER_COMMANDS, *_SYSTEM_COMMANDS
)  # fmt: skip
"""Files that become a command or an instruction without a further question (tools spec 2.4)."""

NOT_PROTECTED_PATTERNS = (".kimi/plans/*.md",)
"""Plans are neither: the user reads them before anything is done."""

_WILDCARD = re.compile(r"[*?\[]")
_NOTHING = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class FilePatterns:
    """Patterns prepared so that most paths need a few look-ups only: searches ask for every file that they find.

    `names` and `endings` compare the last component and its end from a dot on. `paths` has the expressions of patterns
    with several components under their longest literal component; a path without any of these cannot match.
    """

    names: frozenset[str]
    endings: frozenset[str]
    longest_ending: int
    name_globs: re.Pattern[str]
    paths: dict[str, re.Pattern[str]]
    other_paths: re.Pattern[str]

    def match(self, path: str) -> bool:
        """Return whether a pattern matches the path, which has forward slashes and no upper case. Linear in time."""
        name = path[path.rfind("/") + 1 :]
        if name in self.names or self._has_ending(name) or self.name_globs.match(name):
            return True
        parts = path.split("/")
        if not self.paths.keys().isdisjoint(parts):
            found = self.paths.keys() & set(parts)
            if any(self.paths[key].search(path) for key in found):
                return True
        return self.other_paths.search(path) is not None

    def _has_ending(self, name: str) -> bool:
        dot = name.find(".", max(0, len(name) - self.longest_ending))
        while dot >= 0:
            if name[dot:] in self.endings:
                return True
            dot = name.find(".", dot + 1)
        return False


def compile_patterns(patterns: Iterable[str], *, only_ends: bool = False) -> FilePatterns:
    """Return the patterns prepared for matching; with `only_ends` none of them matches what lies below."""
    names: set[str] = set()
    endings: set[str] = set()
    globs: list[str] = []
    paths: dict[str, list[str]] = {}
    for pattern in (pattern.casefold() for pattern in patterns if pattern.strip("/")):
        if "/" in pattern:
            literal = max((part for part in pattern.split("/") if not _WILDCARD.search(part)), key=len, default="")
            paths.setdefault(literal, []).append(_path_to_regex(pattern, only_ends))
        elif not _WILDCARD.search(pattern):
            names.add(pattern)
        elif pattern.startswith("*.") and not _WILDCARD.search(pattern, 1):
            endings.add(pattern[1:])
        else:
            globs.append(glob_to_regex(pattern))
    others = paths.pop("", [])
    return FilePatterns(
        frozenset(names),
        frozenset(endings),
        max(map(len, endings), default=0),
        re.compile(rf"(?:{'|'.join(globs)})\Z", re.DOTALL) if globs else _NOTHING,
        {literal: re.compile("|".join(found), re.DOTALL) for literal, found in paths.items()},
        re.compile("|".join(others), re.DOTALL) if others else _NOTHING,
    )


def _path_to_regex(pattern: str, only_ends: bool) -> str:
    start = "^/" if pattern.startswith("/") else "(?:^|/)"
    parts = "/".join(glob_to_regex(part) for part in pattern.split("/") if part)
    return start + parts + (r"\Z" if only_ends else r"(?:/|\Z)")
